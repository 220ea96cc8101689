// Package drakubeletplugin is dra-kubelet-plugin, the driver akri.sh of Dynamic Resource Allocation
// on a node. The scheduler allocates devices to ResourceClaims. This service prepares them for the
// kubelet, whose calls it gets from the relay: it reserves their slots and writes what containers
// get. It also releases the slots of Pods that got devices from device plugins before the node had
// this form.
package drakubeletplugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"k8s.io/apimachinery/pkg/types"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"akri.sh/libs/node"
	"akri.sh/libs/node/slots"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/dra-kubelet-plugin/internal/cdi"
	"akri.sh/services/dra-kubelet-plugin/internal/claims"
)

// Config is filled from flags and environment.
type Config struct {
	NodeName            string `help:"Name of this node." required:"" env:"AKRI_NODE_NAME,AGENT_NODE_NAME"`
	Pod                 string `help:"Name of this Pod. Slots of device plugins are released only while the kubelet lists it. Empty: while the kubelet lists any Pod." placeholder:"NAMESPACE/NAME"`
	KubeletDir          string `help:"Directory of the kubelet's device plugin sockets." default:"/var/lib/kubelet/device-plugins"`
	PodResources        string `help:"Path of the kubelet's pod-resources socket." default:"/var/lib/kubelet/pod-resources/kubelet.sock"`
	Socket              string `help:"Address of the service, which the relay dials." default:"unix:///run/akri/dra-kubelet-plugin/dra-kubelet-plugin.sock" placeholder:"ADDRESS"`
	Resources           string `help:"How Pods get devices: ${enum}. With auto the service is registered with the kubelet once instance-writer has stated that Pods on the node get them by Dynamic Resource Allocation." enum:"dra,auto" default:"dra"`
	CDIDir              string `name:"cdi-dir" help:"Directory for files of the Container Device Interface." default:"/var/run/cdi"`
	HostDev             string `help:"Directory /dev of the node. Device nodes in containers have the owner, group and mode of those in it." default:"/dev" placeholder:"DIRECTORY"`
	DiscoveryOperator   string `help:"Address of discovery-operator." default:"unix:///run/akri/discovery-operator/discovery-operator.sock" placeholder:"ADDRESS"`
	InstanceWriter      string `help:"Address of instance-writer." default:"dns:///akri-instance-writer:9443" placeholder:"ADDRESS"`
	InstanceWriterCA    string `help:"File with the CA certificates that verify instance-writer. Empty: none, if its address is a Unix socket." placeholder:"FILE"`
	InstanceWriterToken string `help:"File with the service account token that is sent to instance-writer. Empty: none, if its address is a Unix socket." placeholder:"FILE"`
	// Writer replaces the connection to instance-writer if components of a process share it.
	Writer grpc.ClientConnInterface `kong:"-"`
}

// Service is dra-kubelet-plugin.
type Service struct {
	config   Config
	ownPod   types.NamespacedName
	env      service.Env
	metrics  *metrics
	store    *node.Store
	identity []grpc.DialOption
	server   *server
	// registration is whether the relay is to register this service with the kubelet.
	registration *health.Server
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
		config: config, ownPod: ownPod, env: env, identity: identity, metrics: newMetrics(env.Metrics), store: node.NewStore(config.NodeName),
		registration: health.NewServer(),
	}
	s.server = &server{metrics: s.metrics, log: env.Log}
	env.Health.AddReadiness("sources", s.store.CheckReady)
	env.Health.AddLiveness("directories", rpc.CheckDirectory(config.DiscoveryOperator, "unix://"+config.PodResources))
	return s, nil
}

// Run serves until ctx ends, and then finishes the running calls.
func (s *Service) Run(ctx context.Context) error {
	ending := ctx
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	operator, err := rpc.Dial(s.config.DiscoveryOperator, s.env.Metrics)
	if err != nil {
		return err
	}
	defer func() { _ = operator.Close() }()
	writer := s.config.Writer
	if writer == nil {
		own, err := rpc.DialReplicas(s.config.InstanceWriter, s.env.Metrics, append(tracing.DialOptions(), s.identity...)...)
		if err != nil {
			return err
		}
		defer func() { _ = own.Close() }()
		writer = own
	}
	podResources, err := rpc.Dial("unix://"+s.config.PodResources, s.env.Metrics)
	if err != nil {
		return err
	}
	defer func() { _ = podResources.Close() }()
	instances := instancev1.NewInstanceServiceClient(writer)
	files, err := cdi.NewFiles(s.config.CDIDir, s.config.HostDev)
	if err != nil {
		return err
	}
	s.server.claims, err = claims.New(claims.Options{
		Client: instances, Store: s.store, Files: files, Log: s.env.Log, Metrics: s.metrics,
	})
	if err != nil {
		return err
	}
	s.server.slots = slots.NewManager(instances, s.store)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer stop()
		serving, end := context.WithCancel(ctx)
		defer context.AfterFunc(ending, end)()
		return s.serve(serving)
	})
	group.Go(func() error { return s.requestRegistration(ctx) })
	group.Go(func() error { return s.server.claims.Run(ctx) })
	group.Go(func() error { return s.newReclaimer(podResources, s.server.slots).Run(ctx) })
	group.Go(func() error {
		return s.store.WatchDevices(ctx, discoveryv1.NewDeviceInventoryServiceClient(operator), s.env.Log)
	})
	group.Go(func() error { return s.store.WatchInstances(ctx, instances, s.env.Log) })
	return group.Wait()
}

// serve serves the relay. When ctx ends, all preparations have time to finish: if the relay ends,
// too, it cancels them earlier.
func (s *Service) serve(ctx context.Context) error {
	listener, err := rpc.ListenPrivate(ctx, s.env.Log, s.config.Socket)
	if err != nil {
		return err
	}
	s.env.Health.AddLiveness("socket", listener.Check)
	grpcServer := rpc.NewServerWithHealth(s.env.Log, s.env.Metrics, s.registration, tracing.ServerOptions()...)
	drav1.RegisterDRAPluginServer(grpcServer, s.server)
	devices := &healthServer{claims: s.server.claims, node: s.config.NodeName, stopping: ctx.Done()}
	drahealthv1.RegisterDRAResourceHealthServer(grpcServer, devices)
	drahealthv1alpha1.RegisterDRAResourceHealthServer(grpcServer, drahealthv1.V1ServerWrapper{Server: devices})
	registrationv1.RegisterRegistrationServer(grpcServer, s.server)
	return rpc.ServeAndFinish(ctx, func() time.Duration { return prepareTimeout }, grpcServer, listener)
}
