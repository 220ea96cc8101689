package kubelet

import (
	"context"
	"time"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// registerTimeout is how long the kubelet may take: it dials back before it answers.
const registerTimeout = 10 * time.Second

// Options are those of all our plugins.
var Options = &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}

// Registrar registers device plugins with the kubelet.
type Registrar struct {
	client pluginapi.RegistrationClient
}

// NewRegistrar returns a Registrar for a connection to the kubelet's socket.
func NewRegistrar(conn grpc.ClientConnInterface) *Registrar {
	return &Registrar{client: pluginapi.NewRegistrationClient(conn)}
}

// Address is the kubelet's socket for registrations.
func (f *Folder) Address() string { return "unix://" + f.Path(socketName) }

// Register tells the kubelet that the named socket serves the resource. While there is no kubelet it waits for one.
func (r *Registrar) Register(ctx context.Context, socket, resource string) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	_, err := r.client.Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: socket, ResourceName: resource, Options: Options,
	}, grpc.WaitForReady(true))
	return err
}
