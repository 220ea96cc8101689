package kubelet

import (
	"encoding/json"
	"fmt"
	"os"
)

// checkpointName is the file in which the kubelet's device manager notes what it has given to pods.
const checkpointName = "kubelet_internal_checkpoint"

// checkpoint is what we read of it (k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint).
type checkpoint struct {
	Data struct {
		PodDeviceEntries []struct {
			ResourceName string
			DeviceIDs    map[string][]string // by NUMA node
		}
	}
}

// Allocated returns the ids of the devices that the kubelet noted as given to pods, by resource. Unlike the pod-resources
// API it knows the devices of init containers. It is written when something is given and when a plugin sends its list,
// but not when a pod ends.
func (f *Folder) Allocated() (map[string]map[string]bool, error) {
	text, err := os.ReadFile(f.Path(checkpointName))
	if err != nil {
		return nil, fmt.Errorf("read the kubelet's checkpoint: %w", err)
	}
	var noted checkpoint
	if err := json.Unmarshal(text, &noted); err != nil {
		return nil, fmt.Errorf("read the kubelet's checkpoint: %w", err)
	}
	allocated := map[string]map[string]bool{}
	for _, entry := range noted.Data.PodDeviceEntries {
		if allocated[entry.ResourceName] == nil {
			allocated[entry.ResourceName] = map[string]bool{}
		}
		for _, ids := range entry.DeviceIDs {
			for _, id := range ids {
				allocated[entry.ResourceName][id] = true
			}
		}
	}
	return allocated, nil
}
