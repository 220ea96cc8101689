// Package devicepluginhost is device-plugin-host: it offers this node's devices to the kubelet as extended resources,
// one for each Instance and one for each Configuration, and keeps the slots that pods use reserved for this node.
package devicepluginhost

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	allocationv1 "akri.sh/proto/akri/allocation/v1"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/device-plugin-host/internal/kubelet"
	"akri.sh/services/device-plugin-host/internal/node"
	"akri.sh/services/device-plugin-host/internal/plugin"
	"akri.sh/services/device-plugin-host/internal/slots"
	"akri.sh/services/device-plugin-host/internal/trouble"
)

// Config is filled from flags and environment.
type Config struct {
	NodeName          string `help:"Name of this node." required:"" env:"AKRI_NODE_NAME,AGENT_NODE_NAME"`
	Pod               string `help:"This pod, as namespace/name: while the kubelet does not list it, the kubelet does not know its pods yet. Empty: any pod will do." placeholder:"NAMESPACE/NAME"`
	KubeletDir        string `help:"The kubelet's folder of device plugin sockets." default:"/var/lib/kubelet/device-plugins"`
	PodResources      string `help:"The kubelet's pod-resources socket." default:"/var/lib/kubelet/pod-resources/kubelet.sock"`
	DiscoveryOperator string `help:"Address of discovery-operator." default:"unix:///run/akri/discovery-operator.sock" placeholder:"ADDRESS"`
	InstanceWriter    string `help:"Address of instance-writer." default:"dns:///akri-instance-writer:9090" placeholder:"ADDRESS"`
	Allocator         string `help:"Address of config-plugin-allocator." default:"unix:///run/akri/config-plugin-allocator.sock" placeholder:"ADDRESS"`
}

// Service offers the devices of one node.
type Service struct {
	config  Config
	pod     node.Key
	env     service.Env
	metrics *metrics
	store   *node.Store
	synced  synced
}

// New makes the service; nothing starts before Run.
func New(config Config, env service.Env) (*Service, error) {
	s := &Service{config: config, env: env, metrics: newMetrics(env.Metrics), store: node.NewStore(config.NodeName)}
	if config.NodeName == "" {
		return nil, errors.New("--node-name: want the name of this node")
	}
	if config.Pod != "" {
		namespace, name, ok := strings.Cut(config.Pod, "/")
		if !ok || namespace == "" || name == "" {
			return nil, fmt.Errorf("--pod %q: want namespace/name", config.Pod)
		}
		s.pod = node.Key{Namespace: namespace, Name: name}
	}
	env.Health.AddReadiness("sources", s.synced.check)
	return s, nil
}

// connections are those to the neighbours.
type connections struct {
	operator, writer, allocator, kubelet, podResources *grpc.ClientConn
}

// Run offers the devices until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	conns, hangUp, err := s.dial()
	if err != nil {
		return err
	}
	defer hangUp()
	keeper := slots.NewKeeper(instancev1.NewInstanceServiceClient(conns.writer), s.store, s.config.NodeName, s.env.Log)
	folder := kubelet.NewFolder(s.config.KubeletDir, keeper.Forget, s.env.Log)
	offers := plugin.NewServer(s.env.Log, s.env.Metrics)
	plugins := &plugins{
		store: s.store, keeper: keeper, metrics: s.metrics,
		allocator: allocationv1.NewConfigurationAllocatorServiceClient(conns.allocator),
		host: plugin.Host{
			Server: offers, Folder: folder, Registrar: kubelet.NewRegistrar(conns.kubelet),
			Store: s.store, Observer: s.metrics, Log: s.env.Log, Registering: &trouble.Trouble{},
		},
	}
	reclaimer := &slots.Reclaimer{
		Keeper: keeper, Kubelet: podresourcesv1.NewPodResourcesListerClient(conns.podResources), Store: s.store,
		Pod: s.pod, Log: s.env.Log, Done: s.metrics.settled, Checkpoint: folder.Allocated, Rewrite: offers.Resend,
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return s.offer(ctx, folder, folder.Run, offers.Serve, plugins.run, reclaimer.Run)
	})
	group.Go(func() error { return s.watchDevices(ctx, discoveryv1.NewDeviceInventoryServiceClient(conns.operator)) })
	group.Go(func() error { return s.watchInstances(ctx, instancev1.NewInstanceServiceClient(conns.writer)) })
	return group.Wait()
}

// offer runs the parts that act, once no other process does. What they need to know is followed from the start, so that
// one that stands by takes over at once.
func (s *Service) offer(ctx context.Context, folder *kubelet.Folder, parts ...func(context.Context) error) error {
	leave, err := folder.Own(ctx)
	switch {
	case err == nil:
		defer leave()
	case ctx.Err() != nil:
		return nil
	default:
		return err
	}
	folder.RemoveStale(ctx, plugin.SocketPattern)
	s.env.Log.Info("offering devices", zap.String("node", s.config.NodeName), zap.String("endpoint", folder.Address()))
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		group.Go(func() error { return part(ctx) })
	}
	return group.Wait()
}

func (s *Service) dial() (c connections, hangUp func(), err error) {
	var open []*grpc.ClientConn
	hangUp = func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}
	for _, to := range []struct {
		address string
		conn    **grpc.ClientConn
	}{
		{s.config.DiscoveryOperator, &c.operator},
		{s.config.InstanceWriter, &c.writer},
		{s.config.Allocator, &c.allocator},
		{kubelet.NewFolder(s.config.KubeletDir, nil, nil).Address(), &c.kubelet},
		{"unix://" + s.config.PodResources, &c.podResources},
	} {
		if *to.conn, err = rpc.Dial(to.address, s.env.Metrics); err != nil {
			hangUp()
			return c, nil, err
		}
		open = append(open, *to.conn)
	}
	return c, hangUp, nil
}
