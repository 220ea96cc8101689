package process

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubelet records registrations.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	registered chan<- *pluginapi.RegisterRequest
}

// Register is part of the device plugin API.
func (k *kubelet) Register(_ context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.registered <- request
	return &pluginapi.Empty{}, nil
}

// ServeKubelet serves kubelet.sock in the directory until stop is called. It sends the
// registrations of device plugins to the channel.
func ServeKubelet(ctx context.Context, dir string, registered chan<- *pluginapi.RegisterRequest) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		return nil, fmt.Errorf("serve as a kubelet: %w", err)
	}
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, &kubelet{registered: registered})
	go func() { _ = server.Serve(listener) }() // ends with the server
	return server.Stop, nil
}
