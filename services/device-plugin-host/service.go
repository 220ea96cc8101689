// Package devicepluginhost is device-plugin-host. It advertises the devices of a node to its
// kubelet as extended resources, one for each Instance and one for each Configuration, and reserves
// the slots that Pods use.
package devicepluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/libs/node"
	"akri.sh/libs/node/slots"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	allocationv1 "akri.sh/proto/akri/allocation/v1"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/device-plugin-host/internal/kubelet"
	"akri.sh/services/device-plugin-host/internal/plugin"
)

// Config is filled from flags and environment.
type Config struct {
	NodeName            string `help:"Name of this node." required:"" env:"AKRI_NODE_NAME,AGENT_NODE_NAME"`
	Pod                 string `help:"Name of this Pod. Slots are released only while the kubelet lists it. Empty: while the kubelet lists any Pod." placeholder:"NAMESPACE/NAME"`
	KubeletDir          string `help:"Directory of the kubelet's device plugin sockets." default:"/var/lib/kubelet/device-plugins"`
	PodResources        string `help:"Path of the kubelet's pod-resources socket." default:"/var/lib/kubelet/pod-resources/kubelet.sock"`
	DiscoveryOperator   string `help:"Address of discovery-operator." default:"unix:///run/akri/discovery-operator/discovery-operator.sock" placeholder:"ADDRESS"`
	InstanceWriter      string `help:"Address of instance-writer." default:"dns:///akri-instance-writer:9443" placeholder:"ADDRESS"`
	InstanceWriterCA    string `help:"File with the CA certificates that verify instance-writer. Empty: none, if its address is a Unix socket." placeholder:"FILE"`
	InstanceWriterToken string `help:"File with the service account token that is sent to instance-writer. Empty: none, if its address is a Unix socket." placeholder:"FILE"`
	Resources           string `help:"How Pods get devices: ${enum}. With auto the service offers devices only while instance-writer states that Pods on the node get them from device plugins." enum:"devicePlugin,auto" default:"devicePlugin"`
	Allocator           string `help:"Address of config-plugin-allocator." default:"unix:///run/akri/config-plugin-allocator/config-plugin-allocator.sock" placeholder:"ADDRESS"`
	// Writer replaces the connection to instance-writer if components of a process share it.
	Writer grpc.ClientConnInterface `kong:"-"`
}

// Service is device-plugin-host.
type Service struct {
	config    Config
	ownPod    types.NamespacedName
	env       service.Env
	metrics   *metrics
	store     *node.Store
	socketDir *kubelet.SocketDir
	identity  []grpc.DialOption
}

// New returns the service. Run starts it.
func New(config Config, env service.Env) (*Service, error) {
	if config.NodeName == "" {
		return nil, errors.New("--node-name: must not be empty")
	}
	ownPod, err := slots.ParsePod(config.Pod)
	if err != nil {
		return nil, fmt.Errorf("--pod: %w", err)
	}
	identity, err := rpc.Identity{CAFile: config.InstanceWriterCA, TokenFile: config.InstanceWriterToken}.DialOptions(config.InstanceWriter)
	if err != nil {
		return nil, fmt.Errorf("--instance-writer-ca, --instance-writer-token: %w", err)
	}
	s := &Service{
		config: config, identity: identity, ownPod: ownPod, env: env, metrics: newMetrics(env.Metrics),
		store: node.NewStore(config.NodeName), socketDir: kubelet.NewSocketDir(config.KubeletDir, env.Log),
	}
	env.Health.AddReadiness("sources", s.store.CheckReady)
	env.Health.AddLiveness("directories", rpc.CheckDirectory(
		config.DiscoveryOperator, config.Allocator, s.socketDir.Address(), "unix://"+config.PodResources))
	return s, nil
}

// Run serves until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	conns, closeAll, err := s.dial()
	if err != nil {
		return err
	}
	defer closeAll()
	writer := instancev1.NewInstanceServiceClient(conns.writer)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.runPlugins(ctx, conns, writer) })
	group.Go(func() error {
		return s.store.WatchDevices(ctx, discoveryv1.NewDeviceInventoryServiceClient(conns.operator), s.env.Log)
	})
	group.Go(func() error { return s.store.WatchInstances(ctx, writer, s.env.Log) })
	return group.Wait()
}

// runPlugins runs the device plugins all the time, or with --resources=auto while Pods on this node
// get devices from them. When that changes, the plugins end as on SIGTERM, and dra-kubelet-plugin
// releases the slots of the Pods that have ended.
func (s *Service) runPlugins(ctx context.Context, conns connections, writer instancev1.InstanceServiceClient) error {
	run := func(ctx context.Context) error { return s.runLocked(ctx, conns, writer) }
	if s.config.Resources != node.ResourcesAuto {
		return run(ctx)
	}
	s.env.Log.Info("offering no devices until instance-writer states that Pods on this node get them from device plugins")
	return s.store.RunWhile(ctx, instancev1.Resources_RESOURCES_DEVICE_PLUGIN, run)
}

// runLocked runs the device plugins and the reclaimer after other processes on this node have
// ended. The watches run before that, so that a process that stands by can take over at once.
func (s *Service) runLocked(ctx context.Context, conns connections, writer instancev1.InstanceServiceClient) error {
	unlock, err := slots.Lock(ctx, s.config.KubeletDir, s.env.Log)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer unlock()
	s.socketDir.RemoveStale(ctx, plugin.SocketPattern)
	s.env.Log.Info("advertising devices to the kubelet",
		zap.String("node", s.config.NodeName), zap.String("endpoint", s.socketDir.Address()))

	slotManager := slots.NewManager(writer, s.store)
	server := plugin.NewServer(s.env.Log, s.env.Metrics)
	plugins := plugin.NewManager(plugin.Config{
		Server: server, SocketDir: s.socketDir, Registrar: kubelet.NewRegistrar(conns.kubelet, s.env.Log),
		Store: s.store, Slots: slotManager, Allocator: allocationv1.NewConfigurationAllocatorServiceClient(conns.allocator),
		Metrics: s.metrics, Log: s.env.Log,
	})
	pods := slots.NewKubelet(conns.podResources, s.ownPod, s.config.KubeletDir)
	reclaimer := slots.NewReclaimer(slots.ReclaimerConfig{
		Manager: slotManager, Log: s.env.Log, OnResult: s.metrics.slots.Add,
		PodDevices: pods.PodDevices, CheckpointDevices: pods.CheckpointDevices, RewriteCheckpoint: server.ResendDevices,
	})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.socketDir.Watch(ctx, slotManager.KubeletRestarted) })
	group.Go(func() error { return server.Run(ctx) })
	group.Go(func() error { return plugins.Run(ctx) })
	group.Go(func() error { return reclaimer.Run(ctx) })
	return group.Wait()
}

type connections struct {
	writer                                     grpc.ClientConnInterface
	operator, allocator, kubelet, podResources *grpc.ClientConn
}

func (s *Service) dial() (conns connections, closeAll func(), err error) {
	conns.writer = s.config.Writer
	var open []io.Closer
	closeAll = func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}
	for _, target := range []struct {
		address string
		conn    **grpc.ClientConn
	}{
		{s.config.DiscoveryOperator, &conns.operator},
		{s.config.Allocator, &conns.allocator},
		{s.socketDir.Address(), &conns.kubelet},
		{"unix://" + s.config.PodResources, &conns.podResources},
	} {
		if *target.conn, err = rpc.Dial(target.address, s.env.Metrics, tracing.DialOptions()...); err != nil {
			closeAll()
			return conns, nil, err
		}
		open = append(open, *target.conn)
	}
	if conns.writer == nil {
		writer, err := rpc.DialReplicas(s.config.InstanceWriter, s.env.Metrics, append(tracing.DialOptions(), s.identity...)...)
		if err != nil {
			closeAll()
			return conns, nil, err
		}
		conns.writer, open = writer, append(open, writer)
	}
	return conns, closeAll, nil
}
