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
	"akri.sh/libs/kube/identitytest"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/integration/simulation"
)

const (
	sharingCapacity = 10
	reservations    = 300
	warmUp          = 10 // calls that open connections and review tokens
	namespace       = simulation.Namespace
)

// sharing is the cost of reserving a slot of a device that several nodes share.
type sharing struct {
	nodes int
	// reserved are the durations of ReserveSlots.
	reserved []time.Duration
	// allocated are the durations of Allocate by level of the resource.
	allocated map[string][]time.Duration
	writes    float64 // API writes per reservation
	bytes     int     // size of the Instance
}

// sharing measures reservations and prints the results.
func (b *bench) sharing(ctx context.Context) error {
	results, err := b.share(ctx)
	if err != nil {
		return fmt.Errorf("measure sharing: %w", err)
	}
	b.printSharing(results)
	return nil
}

// share measures a separate instance-writer and API server.
func (b *bench) share(ctx context.Context) (results []sharing, err error) {
	w, err := startWriter(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
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

func (w *writer) measure(ctx context.Context, nodes int) (result sharing, err error) {
	result.nodes = nodes
	configuration := "share" + strconv.Itoa(nodes)
	name := akriv0.InstanceName(configuration, akriv0.Digest("camera", "", true))
	names, err := w.prepare(ctx, configuration, name, nodes)
	if err != nil {
		return result, err
	}
	before, err := w.Instances.In(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return result, fmt.Errorf("get Instance: %w", err)
	}
	if result.reserved, err = w.reserveRepeatedly(ctx, names[0], name); err != nil {
		return result, err
	}
	after, err := w.Instances.In(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return result, fmt.Errorf("get Instance: %w", err)
	}
	encoded, err := json.Marshal(after)
	if err != nil {
		return result, fmt.Errorf("encode Instance: %w", err)
	}
	// The generation counts the writes of the spec. Each slot is also released.
	made := float64(warmUp + reservations)
	result.writes = (float64(after.Generation-before.Generation) - made) / made
	result.bytes = len(encoded)
	result.allocated, err = w.allocations(ctx, names[0], configuration, name)
	return result, err
}

// reserveRepeatedly reserves and releases the slots one by one, as the device-plugin-host of the
// node.
func (w *writer) reserveRepeatedly(ctx context.Context, node, instance string) (took []time.Duration, err error) {
	conn, err := w.Writers[0].Dial(ctx, identitytest.DevicePluginHost, node)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := instancev1.NewInstanceServiceClient(conn)

	for i := range warmUp + reservations {
		claims := []*instancev1.SlotClaim{{Namespace: namespace, Instance: instance, Index: uint32(i % sharingCapacity)}}
		start := time.Now()
		if _, err := client.ReserveSlots(ctx, &instancev1.ReserveSlotsRequest{Node: node, Claims: claims}); err != nil {
			return nil, fmt.Errorf("reserve: %w", err)
		}
		if i >= warmUp {
			took = append(took, time.Since(start))
		}
		if _, err := client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: node, Claims: claims}); err != nil {
			return nil, fmt.Errorf("release: %w", err)
		}
	}

	slices.Sort(took)
	return took, nil
}

// prepare creates the nodes and reports one device for each of them.
func (w *writer) prepare(ctx context.Context, configuration, instance string, count int) ([]string, error) {
	created, err := w.Configure(ctx, configuration, "debugEcho", sharingCapacity)
	if err != nil {
		return nil, err
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

// report reports the device once, as the discovery-operator of the node.
func (w *writer) report(ctx context.Context, node, instance string, configuration *akriv0.Configuration) error {
	conn, err := w.Writers[0].Dial(ctx, identitytest.DiscoveryOperator, node)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := instancev1.NewInstanceServiceClient(conn).ReportDevices(ctx, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	device := &discoveryv1.Device{Instance: instance, Id: "camera", Shared: true, Properties: map[string]string{
		"ONVIF_DEVICE_SERVICE_URL": "http://10.0.0.1:1000/onvif/device_service", "ONVIF_DEVICE_IP_ADDRESS": "10.0.0.1",
	}}
	err = stream.Send(&instancev1.ReportDevicesRequest{
		Node: node, Revision: 1, Namespace: namespace, Configuration: configuration.Name, ConfigurationUid: string(configuration.UID), Complete: true,
		Devices: []*discoveryv1.Device{device},
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
	fmt.Fprintf(b.Out, "\n| Nodes that share a device | reservations | p50 | p99 | API writes per reservation | Instance size |\n"+
		"|---|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(b.Out, "| %d | %d | %s | %s | %.2f | %.1f KiB |\n",
			r.nodes, len(r.reserved), percentile(r.reserved, 50), percentile(r.reserved, 99), r.writes, float64(r.bytes)/1024)
	}
	fmt.Fprintf(b.Out, "\n| Nodes that share a device, level | Allocate calls | p50 | p99 |\n|---|---|---|---|\n")
	for _, r := range results {
		for _, level := range []string{instanceLevel, configurationLevel} {
			took := r.allocated[level]
			fmt.Fprintf(b.Out, "| %d, %s | %d | %s | %s |\n", r.nodes, level, len(took), percentile(took, 50), percentile(took, 99))
		}
	}
}
