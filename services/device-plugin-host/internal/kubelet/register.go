package kubelet

import (
	"context"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/libs/failurelog"
)

// registerTimeout includes the call with which the kubelet dials the plugin before it answers.
const registerTimeout = 10 * time.Second

// Options are the device plugin options of all plugins.
var Options = &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}

// Registrar registers device plugins with the kubelet.
type Registrar struct {
	client   pluginapi.RegistrationClient
	failures *failurelog.Log
}

// NewRegistrar returns a Registrar for a connection to the kubelet's socket.
func NewRegistrar(conn grpc.ClientConnInterface, log *zap.Logger) *Registrar {
	return &Registrar{
		client: pluginapi.NewRegistrationClient(conn),
		failures: failurelog.New(log,
			"registering with the kubelet keeps failing; check --kubelet-dir and that the kubelet can connect to sockets in it",
			"registering with the kubelet works again"),
	}
}

// Register registers the named socket as the device plugin of the resource. It waits up to 10 s for
// the kubelet.
func (r *Registrar) Register(ctx context.Context, socket, resource string) error {
	callCtx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	_, err := r.client.Register(callCtx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: socket, ResourceName: resource, Options: Options,
	}, grpc.WaitForReady(true))
	if ctx.Err() == nil {
		r.failures.Record(err)
	}
	return err
}
