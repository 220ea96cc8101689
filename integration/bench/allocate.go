package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/identitytest"
	"akri.sh/libs/rpc"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"

	"akri.sh/integration/process"
)

const (
	instanceLevel, configurationLevel = "instance", "configuration"
	registerTimeout                   = 10 * time.Second
)

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

// allocations measures the duration of the kubelet's Allocate calls to a device-plugin-host, with a
// config-plugin-allocator, by level of the resource. Each call reserves its slot again.
func (w *writer) allocations(ctx context.Context, node, configuration, instance string) (took map[string][]time.Duration, err error) {
	host, err := w.startHost(ctx, node, configuration, instance)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, host.stop()) }()

	took = map[string][]time.Duration{}
	for level, id := range map[string]string{
		instanceLevel:      akriv0.SlotName(instance, sharingCapacity-1), // virtual devices use the lowest slots
		configurationLevel: "0",
	} {
		request := &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{id}}}}
		for i := range warmUp + reservations {
			start := time.Now()
			if _, err := host.plugins[level].Allocate(ctx, request); err != nil {
				return nil, fmt.Errorf("allocate: %w", err)
			}
			if i >= warmUp {
				took[level] = append(took[level], time.Since(start))
			}
		}
		slices.Sort(took[level])
	}

	return took, nil
}

// pluginHost is a running device-plugin-host with a fake kubelet.
type pluginHost struct {
	plugins  map[string]pluginapi.DevicePluginClient // by level
	cleanups []func() error                          // in the order in which they were added
}

func (h *pluginHost) stop() error {
	var errs []error
	for _, cleanUp := range slices.Backward(h.cleanups) {
		errs = append(errs, cleanUp())
	}
	return errors.Join(errs...)
}

// startHost starts a device-plugin-host and waits until it has registered the resources of a
// device.
func (w *writer) startHost(ctx context.Context, node, configuration, instance string) (h *pluginHost, err error) {
	h = &pluginHost{plugins: map[string]pluginapi.DevicePluginClient{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.stop())
		}
	}()

	dir, err := os.MkdirTemp("", "akri-bench-")
	if err != nil {
		return h, fmt.Errorf("create directory: %w", err)
	}
	h.cleanups = append(h.cleanups, func() error { return os.RemoveAll(dir) })
	socket := func(name string) string { return "unix://" + filepath.Join(dir, name) }
	registered := make(chan *pluginapi.RegisterRequest, 10)

	stop, err := serveNode(ctx, dir, registered, configuration, instance)
	if err != nil {
		return h, err
	}
	h.cleanups = append(h.cleanups, func() error { stop(); return nil })

	allocator, err := process.Start(ctx, nil, "config-plugin-allocator", "--socket", socket("allocator.sock"), "--admin-address=", "--log-level=error")
	if err != nil {
		return h, err
	}
	h.cleanups = append(h.cleanups, allocator.Stop)

	flags, err := w.Writers[0].Flags(ctx, identitytest.DevicePluginHost, node)
	if err != nil {
		return h, err
	}
	host, err := process.Start(ctx, nil, "device-plugin-host", append(flags,
		"--node-name", node, "--kubelet-dir", dir, "--pod-resources", filepath.Join(dir, "none.sock"),
		"--discovery-operator", socket("operator.sock"), "--allocator", socket("allocator.sock"), "--admin-address=", "--log-level=error")...)
	if err != nil {
		return h, err
	}
	h.cleanups = append(h.cleanups, host.Stop)

	resources := map[string]string{instanceLevel: akriv0.ResourceName(instance), configurationLevel: akriv0.ResourceName(configuration)}
	endpoints, err := awaitEndpoints(ctx, registered, slices.Collect(maps.Values(resources))...)
	if err != nil {
		return h, err
	}
	for level, resource := range resources {
		conn, err := rpc.Dial(socket(endpoints[resource]), prometheus.NewRegistry())
		if err != nil {
			return h, err
		}
		h.cleanups = append(h.cleanups, conn.Close)
		h.plugins[level] = pluginapi.NewDevicePluginClient(conn)
	}
	return h, nil
}

// serveNode serves the kubelet and the discovery-operator of a node in a directory. The node has
// one camera, the device of the Instance.
func serveNode(
	ctx context.Context, dir string, registered chan *pluginapi.RegisterRequest, configuration, instance string,
) (stop func(), err error) {
	stopKubelet, err := process.ServeKubelet(ctx, dir, registered)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(dir, "operator.sock"))
	if err != nil {
		stopKubelet()
		return nil, fmt.Errorf("serve a node: %w", err)
	}
	server := grpc.NewServer()
	discoveryv1.RegisterDeviceInventoryServiceServer(server, &inventory{response: &discoveryv1.WatchDevicesResponse{
		Configurations: []*discoveryv1.ConfigurationDevices{{
			Namespace: namespace, Name: configuration, Complete: true,
			Devices: []*discoveryv1.Device{{Instance: instance, Id: "camera", Shared: true, Properties: map[string]string{"URL": "rtsp://10.0.0.1"}}},
		}},
	}})
	go func() { _ = server.Serve(listener) }() // ends with the server
	return func() { server.Stop(); stopKubelet() }, nil
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
