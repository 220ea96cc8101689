package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

const (
	sharingCapacity = 10
	reservations    = 300
	namespace       = "default"
)

// sharing is the cost of reserving a slot of a device that several nodes share.
type sharing struct {
	nodes int
	took  []time.Duration
	// allocated are the durations of Allocate by the level of the resource.
	allocated map[string][]time.Duration
	writes    float64 // API writes per reservation
	bytes     int     // size of the Instance
}

// share measures a separate instance-writer and API server. The nodes are simulated by their
// reports.
func (b *bench) share(ctx context.Context) (results []sharing, err error) {
	api, err := kubetest.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer api.Stop()
	w, err := startWriter(ctx, api)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	for _, nodes := range []int{1, 50, 100, 250} {
		b.progress("reserving slots of a device that %d nodes share", nodes)
		result, err := w.measure(ctx, nodes)
		if err != nil {
			return nil, fmt.Errorf("%d nodes: %w", nodes, err)
		}
		results = append(results, result)
	}
	return results, nil
}

// measure reserves and releases the slots one by one, each for another node.
func (w *writer) measure(ctx context.Context, nodes int) (result sharing, err error) {
	result.nodes = nodes
	configuration := "share" + strconv.Itoa(nodes)
	name := akriv0.InstanceName(configuration, akriv0.Digest("camera", "", true))
	names, err := w.prepare(ctx, configuration, name, nodes)
	if err != nil {
		return result, err
	}
	instances := w.Instances.In(namespace)
	before, err := instances.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return result, fmt.Errorf("get Instance: %w", err)
	}
	for i := range reservations {
		claims := []*instancev1.SlotClaim{{Namespace: namespace, Instance: name, Index: uint32(i % sharingCapacity)}}
		node := names[i%len(names)]
		start := time.Now()
		if _, err := w.client.ReserveSlots(ctx, &instancev1.ReserveSlotsRequest{Node: node, Claims: claims}); err != nil {
			return result, fmt.Errorf("reserve: %w", err)
		}
		result.took = append(result.took, time.Since(start))
		if _, err := w.client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: node, Claims: claims}); err != nil {
			return result, fmt.Errorf("release: %w", err)
		}
	}
	after, err := instances.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return result, fmt.Errorf("get Instance: %w", err)
	}
	encoded, err := json.Marshal(after)
	if err != nil {
		return result, fmt.Errorf("encode Instance: %w", err)
	}
	// The generation counts the writes of the spec.
	result.writes = float64(after.Generation-before.Generation-reservations) / reservations
	result.bytes = len(encoded)
	slices.Sort(result.took)
	result.allocated, err = w.allocations(ctx, names[0], configuration, name)
	return result, err
}

// prepare creates the nodes and reports one device for each of them.
func (w *writer) prepare(ctx context.Context, configuration, instance string, count int) ([]string, error) {
	capacity := int32(sharingCapacity)
	created, err := w.Configurations.In(namespace).Create(ctx, &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: configuration, Namespace: namespace},
		Spec:       akriv0.ConfigurationSpec{Capacity: &capacity, DiscoveryHandler: akriv0.DiscoveryHandler{Name: "debugEcho"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create Configuration: %w", err)
	}
	names := make([]string, count)
	var group errgroup.Group
	for i := range names {
		names[i] = fmt.Sprintf("%s-node-%03d", configuration, i)
		if _, err := w.Kubernetes.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: names[i]}}, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create Node: %w", err)
		}
	}
	for _, node := range names {
		group.Go(func() error { return w.report(ctx, node, instance, created) })
	}
	return names, group.Wait()
}

func (w *writer) report(ctx context.Context, node, instance string, configuration *akriv0.Configuration) error {
	stream, err := w.client.ReportDevices(ctx, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	device := &instancev1.Device{Instance: instance, Id: "camera", Shared: true, Properties: map[string]string{
		"ONVIF_DEVICE_SERVICE_URL": "http://10.0.0.1:1000/onvif/device_service", "ONVIF_DEVICE_IP_ADDRESS": "10.0.0.1",
	}}
	err = stream.Send(&instancev1.ReportDevicesRequest{
		Node: node, Revision: 1, Namespace: namespace, Configuration: configuration.Name, ConfigurationUid: string(configuration.UID), Complete: true,
		Devices: []*instancev1.Device{device},
	})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return stream.CloseSend()
}

func (b *bench) printSharing(results []sharing) {
	fmt.Fprintf(b.Out, "\n| Nodes that share a device | reservations | p50 | p99 | API writes per reservation | Instance size |\n|---|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(b.Out, "| %d | %d | %s | %s | %.2f | %.1f KiB |\n", r.nodes, len(r.took), percentile(r.took, 50), percentile(r.took, 99), r.writes, float64(r.bytes)/1024)
	}
	fmt.Fprintf(b.Out, "\n| Nodes that share a device | Allocate calls | by Instance p50 | p99 | by Configuration p50 | p99 |\n|---|---|---|---|---|---|\n")
	for _, r := range results {
		byInstance, byConfiguration := r.allocated[instanceLevel], r.allocated[configurationLevel]
		fmt.Fprintf(b.Out, "| %d | %d | %s | %s | %s | %s |\n", r.nodes, len(byInstance),
			percentile(byInstance, 50), percentile(byInstance, 99), percentile(byConfiguration, 50), percentile(byConfiguration, 99))
	}
}
