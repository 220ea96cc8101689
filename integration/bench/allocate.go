package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/rpc"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"

	"akri.sh/integration/process"
)

const (
	instanceLevel, configurationLevel = "instance", "configuration"
	registerTimeout                   = 10 * time.Second
)

// kubelet is a fake kubelet that records registrations.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	registered chan *pluginapi.RegisterRequest
}

// Register is part of the device plugin API.
func (k *kubelet) Register(_ context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.registered <- request
	return &pluginapi.Empty{}, nil
}

// inventory is a fake discovery-operator with one device.
type inventory struct {
	discoveryv1.UnimplementedDeviceInventoryServiceServer
	response *discoveryv1.WatchDevicesResponse
}

// WatchDevices sends the device.
func (i *inventory) WatchDevices(_ *discoveryv1.WatchDevicesRequest, stream grpc.ServerStreamingServer[discoveryv1.WatchDevicesResponse]) error {
	if err := stream.Send(i.response); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// allocations measures the duration of the kubelet's Allocate calls to a device-plugin-host with a
// config-plugin-allocator. Each call reserves its slot again.
func (w *writer) allocations(ctx context.Context, node, configuration, instance string) (took map[string][]time.Duration, err error) {
	dir, err := os.MkdirTemp("", "akri-bench-")
	if err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	socket := func(name string) string { return "unix://" + filepath.Join(dir, name) }
	registered := make(chan *pluginapi.RegisterRequest, 10)
	stop, err := serveNode(ctx, dir, registered, &discoveryv1.WatchDevicesResponse{Configurations: []*discoveryv1.ConfigurationDevices{{
		Namespace: namespace, Name: configuration, Complete: true,
		Devices: []*discoveryv1.Device{{Instance: instance, Id: "camera", Shared: true, Properties: map[string]string{"URL": "rtsp://10.0.0.1"}}},
	}}})
	if err != nil {
		return nil, err
	}
	defer stop()
	allocator, err := process.Start(ctx, nil, "config-plugin-allocator", "--socket", socket("allocator.sock"), "--admin-address=", "--log-level=error")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, allocator.Stop()) }()
	host, err := process.Start(ctx, nil, "device-plugin-host", "--node-name", node, "--kubelet-dir", dir, "--pod-resources", filepath.Join(dir, "none.sock"),
		"--discovery-operator", socket("operator.sock"), "--instance-writer", w.address, "--allocator", socket("allocator.sock"),
		"--admin-address=", "--log-level=error")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, host.Stop()) }()
	endpoints, err := awaitEndpoints(ctx, registered, akriv0.ResourceName(instance), akriv0.ResourceName(configuration))
	if err != nil {
		return nil, err
	}
	took = map[string][]time.Duration{}
	for level, device := range map[string]struct{ resource, id string }{
		instanceLevel:      {akriv0.ResourceName(instance), akriv0.SlotName(instance, sharingCapacity-1)}, // virtual devices use the lowest slots
		configurationLevel: {akriv0.ResourceName(configuration), "0"},
	} {
		if took[level], err = allocateRepeatedly(ctx, socket(endpoints[device.resource]), device.id); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// serveNode serves the kubelet and the discovery-operator of a node in a directory.
func serveNode(ctx context.Context, dir string, registered chan *pluginapi.RegisterRequest, devices *discoveryv1.WatchDevicesResponse) (stop func(), err error) {
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, &kubelet{registered: registered})
	discoveryv1.RegisterDeviceInventoryServiceServer(server, &inventory{response: devices})
	for _, name := range []string{"kubelet.sock", "operator.sock"} {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("serve a node: %w", err)
		}
		go func() { _ = server.Serve(listener) }() // ends with the server
	}
	return server.Stop, nil
}

// awaitEndpoints waits until all resources are registered and returns their sockets.
func awaitEndpoints(ctx context.Context, registered <-chan *pluginapi.RegisterRequest, resources ...string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	endpoints := map[string]string{}
	for slices.ContainsFunc(resources, func(resource string) bool { return endpoints[resource] == "" }) {
		select {
		case request := <-registered:
			endpoints[request.GetResourceName()] = request.GetEndpoint()
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for registrations of %v, received %v: %w", resources, endpoints, ctx.Err())
		}
	}
	return endpoints, nil
}

func allocateRepeatedly(ctx context.Context, address, id string) (took []time.Duration, err error) {
	conn, err := rpc.Dial(address, prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	plugin := pluginapi.NewDevicePluginClient(conn)
	request := &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{id}}}}
	for range reservations {
		start := time.Now()
		if _, err := plugin.Allocate(ctx, request); err != nil {
			return nil, fmt.Errorf("allocate: %w", err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took, nil
}
