// Package checkpoint makes the kubelet write the checkpoint file of its device manager.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/libs/rpc"
)

const (
	socketName = "akri-checkpoint.sock"
	timeout    = 5 * time.Second
	// disconnectGrace is how long the kubelet may take to process the end of the plugin. It would
	// take it for the end of a device-plugin-host's plugin of the resource that starts then.
	disconnectGrace = 100 * time.Millisecond
)

// Writer makes the kubelet write its checkpoint file.
type Writer struct {
	// Dir is the kubelet's directory of device plugins.
	Dir     string
	Log     *zap.Logger
	Metrics prometheus.Registerer
}

// Rewrite makes the kubelet write its checkpoint file: it registers a device plugin of the resource
// that has no devices, and ends it when the kubelet has its list. The kubelet must have no other
// plugin of the resource.
func (w Writer) Rewrite(ctx context.Context, resource string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	kubelet, err := rpc.Dial("unix://"+filepath.Join(w.Dir, "kubelet.sock"), w.Metrics)
	if err != nil {
		return err
	}
	defer func() { _ = kubelet.Close() }()
	listener, err := rpc.Socket{Path: filepath.Join(w.Dir, socketName)}.Bind(ctx)
	if err != nil {
		return err
	}
	server, emptyPlugin := rpc.NewServer(w.Log, w.Metrics), &plugin{listed: make(chan struct{}, 1)}
	pluginapi.RegisterDevicePluginServer(server, emptyPlugin)
	serving, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- rpc.Serve(serving, server, listener) }()
	_, err = pluginapi.NewRegistrationClient(kubelet).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: socketName, ResourceName: resource,
	})
	if err == nil {
		select {
		case <-emptyPlugin.listed:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	stop()
	err = errors.Join(err, <-stopped)
	<-time.After(disconnectGrace)
	if err != nil {
		return fmt.Errorf("register a device plugin without devices: %w", err)
	}
	return nil
}

// plugin is a device plugin without devices.
type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	listed chan struct{}
}

// GetDevicePluginOptions implements the device plugin API.
func (*plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch implements the device plugin API. Its end is the end of the plugin.
func (p *plugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	err := stream.Send(&pluginapi.ListAndWatchResponse{})
	p.listed <- struct{}{}
	return err
}
