// Package relay forwards the calls of the kubelet to dra-kubelet-plugin. It runs in a container of
// its own, so that it serves the kubelet while the container of dra-kubelet-plugin restarts: the
// kubelet repeats a preparation that failed only after 60 to 90 s.
package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/node/slots"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
)

// Name is the argument with which the binaries of dra-kubelet-plugin and of the agent run the
// relay.
const Name = "relay"

// Description is the help of the relay.
const Description = "Forwards the calls of the kubelet to dra-kubelet-plugin, and waits while that restarts."

// Config is filled from flags and environment.
type Config struct {
	Pod         string `help:"Name of this Pod, which names the socket." placeholder:"NAMESPACE/NAME"`
	RegistryDir string `help:"Directory in which the kubelet looks for plugins." default:"/var/lib/kubelet/plugins_registry"`
	Plugin      string `help:"Address of dra-kubelet-plugin." default:"unix:///run/akri/dra-kubelet-plugin/dra-kubelet-plugin.sock" placeholder:"ADDRESS"`
}

// Relay serves the kubelet with the answers of the plugin.
type Relay struct {
	config       Config
	ownPod       types.NamespacedName
	env          service.Env
	plugin       *grpc.ClientConn
	preparations preparations
	registered   atomic.Bool
	// idle is set while the plugin does not request a registration.
	idle atomic.Bool
	// closed has the channel of the current connection. It is closed when the calls of that
	// connection are to be sent again, because the plugin has closed it.
	closed broadcast.Value[chan struct{}]
}

// New returns the relay. Run starts it.
func New(config Config, env service.Env) (*Relay, error) {
	ownPod, err := slots.ParsePod(config.Pod)
	if err != nil {
		return nil, fmt.Errorf("--pod: %w", err)
	}
	r := &Relay{config: config, ownPod: ownPod, env: env, preparations: newPreparations()}
	env.Health.AddLiveness("directories", rpc.CheckDirectory("unix://"+r.socket()))
	env.Health.AddReadiness("kubelet", r.checkReady)
	return r, nil
}

// checkReady is a readiness check: it fails until the kubelet has registered the plugin, or the
// plugin has stated that it requests no registration.
func (r *Relay) checkReady(context.Context) error {
	if !r.registered.Load() && !r.idle.Load() {
		return errors.New("not registered with the kubelet yet")
	}
	return nil
}

// Run serves the kubelet until ctx ends, and then finishes its running calls.
func (r *Relay) Run(ctx context.Context) (err error) {
	r.plugin, err = rpc.Dial(r.config.Plugin, r.env.Metrics, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{})))
	if err != nil {
		return err
	}
	defer func() { _ = r.plugin.Close() }()
	if !r.awaitPlugin(ctx) || !r.awaitRequest(ctx) {
		return nil
	}

	r.closed.Set(make(chan struct{}))
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { r.followConnections(ctx) })

	// The kubelet finds the socket in its directory, also after it has restarted.
	listener, err := rpc.Listen(ctx, r.env.Log, "unix://"+r.socket())
	if err != nil {
		return err
	}
	if err := r.removeStaleSockets(ctx); err != nil {
		return errors.Join(err, listener.Close())
	}

	r.env.Health.AddLiveness("socket", listener.Check)
	server := rpc.NewServer(r.env.Log, r.env.Metrics, grpc.UnknownServiceHandler(r.forward), grpc.ForceServerCodecV2(codec{}))
	return rpc.ServeAndFinish(ctx, r.timeToFinish, server, listener)
}

// awaitPlugin waits until the plugin serves, or returns false when ctx has ended. The kubelet waits
// for a plugin that it registers for a second, and repeats a registration that fails after a delay
// that grows to two minutes.
func (r *Relay) awaitPlugin(ctx context.Context) bool {
	r.plugin.Connect()
	for state := r.plugin.GetState(); state != connectivity.Ready; state = r.plugin.GetState() {
		if !r.plugin.WaitForStateChange(ctx, state) {
			return false
		}
	}
	r.env.Log.Info("connected to the plugin", zap.String("plugin", r.config.Plugin))
	return true
}
