package slots

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	listTimeout    = 2 * time.Second
	checkpointName = "kubelet_internal_checkpoint"
)

// Devices are the ids of devices by extended resource.
type Devices map[string]sets.Set[string]

// Has reports whether the device is in the set.
func (d Devices) Has(resource, id string) bool { return d[resource].Has(id) }

func (d Devices) add(resource string, ids ...string) {
	if d[resource] == nil {
		d[resource] = sets.New[string]()
	}
	d[resource].Insert(ids...)
}

// ParsePod parses namespace/name. The empty string is the empty name.
func ParsePod(pod string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(pod, "/")
	if pod != "" && (!ok || namespace == "" || name == "") {
		return types.NamespacedName{}, fmt.Errorf("%q must have the form namespace/name", pod)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// Kubelet reads which devices the kubelet has allocated to Pods.
type Kubelet struct {
	pods   podresourcesv1.PodResourcesListerClient
	ownPod types.NamespacedName
	dir    string
}

// NewKubelet returns the kubelet with a connection to its pod-resources socket and its directory of
// device plugins. ownPod is the Pod of this process, or empty.
func NewKubelet(podResources grpc.ClientConnInterface, ownPod types.NamespacedName, dir string) *Kubelet {
	return &Kubelet{pods: podresourcesv1.NewPodResourcesListerClient(podResources), ownPod: ownPod, dir: dir}
}

// PodDevices reads the devices of all Pods, except those of init containers, from the kubelet's
// pod-resources API. An incomplete list is an error. A list counts as complete only if it contains
// the Pod of this process, or any Pod if that is empty: after a start the kubelet lists no Pods
// until it has received them from the API server.
func (k *Kubelet) PodDevices(ctx context.Context) (Devices, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	response, err := k.pods.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pod resources: %w", err)
	}
	devices, complete := Devices{}, false
	for _, pod := range response.GetPodResources() {
		name := types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetName()}
		complete = complete || k.ownPod == name || k.ownPod == types.NamespacedName{}
		for _, container := range pod.GetContainers() {
			for _, device := range container.GetDevices() {
				devices.add(device.GetResourceName(), device.GetDeviceIds()...)
			}
		}
	}
	if !complete {
		return nil, fmt.Errorf("list pod resources: the kubelet has not received its Pods from the API server yet (%d listed)",
			len(response.GetPodResources()))
	}
	return devices, nil
}

// checkpoint has the fields used here of k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint.
type checkpoint struct {
	Data struct {
		PodDeviceEntries []struct {
			ResourceName string
			DeviceIDs    map[string][]string // by NUMA node
		}
	}
}

// CheckpointDevices returns the allocated devices in the checkpoint file of the kubelet's device
// manager. Unlike the pod-resources API it includes the devices of init containers. The kubelet
// writes the file when it allocates a device and when a plugin sends its device list, but not when
// a Pod ends.
func (k *Kubelet) CheckpointDevices() (Devices, error) {
	content, err := os.ReadFile(filepath.Join(k.dir, checkpointName))
	if err != nil {
		return nil, fmt.Errorf("read kubelet checkpoint: %w", err)
	}
	var state checkpoint
	if err := json.Unmarshal(content, &state); err != nil {
		return nil, fmt.Errorf("read kubelet checkpoint: %w", err)
	}
	devices := Devices{}
	for _, entry := range state.Data.PodDeviceEntries {
		for _, ids := range entry.DeviceIDs {
			devices.add(entry.ResourceName, ids...)
		}
	}
	return devices, nil
}
