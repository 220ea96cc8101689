// Package operator is the discovery-operator: it asks the node's Discovery Handlers for the devices that Configurations
// want, and tells the node and the cluster what they answer.
package operator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"akri.sh/libs/kube"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	"akri.sh/services/discovery-operator/internal/discovery"
	"akri.sh/services/discovery-operator/internal/inventory"
	"akri.sh/services/discovery-operator/internal/properties"
)

// Config of the service.
type Config struct {
	kube.Flags
	Socket         string        `help:"Address to serve the device inventory on." default:"unix:///run/akri/discovery-operator.sock" placeholder:"ADDRESS"`
	Registrar      string        `help:"Address of the registrar." default:"unix:///run/akri/registrar.sock" placeholder:"ADDRESS"`
	InstanceWriter string        `help:"Address of the instance-writer." default:"dns:///akri-instance-writer:9090" placeholder:"ADDRESS"`
	NodeName       string        `help:"Name of this node." env:"AKRI_NODE_NAME,AGENT_NODE_NAME" placeholder:"NAME"`
	HandlerGrace   time.Duration `help:"How long devices stay while no handler that could tell of them is there." default:"5m"`

	AllowHostPaths  []string `help:"Host paths that devices may ask for although they give away the node, with all below them." placeholder:"PATH"`
	AllowProperties []string `help:"Names of properties that devices may have although they decide what programs do, such as LD_PRELOAD." placeholder:"NAME"`
}

// Service is the discovery-operator.
type Service struct {
	config Config
	env    service.Env
}

// New checks the configuration. It starts nothing.
func New(config Config, env service.Env) (*Service, error) {
	var problems []error
	if config.NodeName == "" {
		problems = append(problems, errors.New("--node-name is empty: want the name of this node"))
	}
	if config.HandlerGrace <= 0 {
		problems = append(problems, fmt.Errorf("--handler-grace %v: want more than 0", config.HandlerGrace))
	}
	for _, allowed := range config.AllowHostPaths {
		if !filepath.IsAbs(allowed) {
			problems = append(problems, fmt.Errorf("--allow-host-paths %q: want an absolute path", allowed))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return &Service{config: config, env: env}, nil
}

// Run works until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	c, err := s.coordinator()
	if err != nil {
		return err
	}
	conns, err := s.dial(s.config.Socket, s.config.Registrar, s.config.InstanceWriter)
	if err != nil {
		return err
	}
	defer closeAll(conns)
	own, registrar, writer := conns[0], conns[1], conns[2]
	s.env.Metrics.MustRegister(viewsCollector{c.views})
	s.env.Health.AddLiveness("discovery-operator socket", answers(own))
	s.env.Health.AddReadiness("configurations", func(context.Context) error {
		if !c.configurations.HasSynced() {
			return kube.ErrNotSynced
		}
		return nil
	})

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.serve(ctx, c.views) })
	group.Go(func() error { c.configurations.RunWithContext(ctx); return nil })
	group.Go(func() error { watchHandlers(ctx, s.env.Log, registrar, c.inbox.handlersChanged); return nil })
	group.Go(func() error { reportStatuses(ctx, s.env.Log, registrar, c.reports, c.inbox.look); return nil })
	group.Go(func() error {
		(&reporter{log: s.env.Log, node: s.config.NodeName, views: c.views, conn: writer, refused: map[string]string{}}).run(ctx)
		return nil
	})
	group.Go(func() error {
		// Before the first full list of Configurations an absent one means nothing.
		if kube.WaitForSync(ctx, c.configurations) == nil {
			c.run(ctx)
		}
		return nil
	})
	return group.Wait()
}

func (s *Service) coordinator() (*coordinator, error) {
	config, err := s.config.RESTConfig(s.env.Log)
	if err != nil {
		return nil, err
	}
	client, err := kube.Configurations(config)
	if err != nil {
		return nil, err
	}
	informer, err := kube.NewInformer(client, indexers, trim)
	if err != nil {
		return nil, err
	}
	reader, err := properties.NewAPIServer(config)
	if err != nil {
		return nil, err
	}
	inbox := newInbox()
	if err := informer.OnChange(inbox.configurationChanged); err != nil {
		return nil, err
	}
	return &coordinator{
		log: s.env.Log, node: s.config.NodeName, grace: s.config.HandlerGrace, configurations: informer,
		sessions: discovery.Env{
			Log: s.env.Log, Reader: reader, Follower: properties.NewFollower(s.env.Log, reader), Metrics: discovery.NewMetrics(s.env.Metrics),
			Allow: inventory.Allow{HostPaths: s.config.AllowHostPaths, Properties: s.config.AllowProperties},
		},
		inbox: inbox, views: newViews(), reports: make(chan []*registrarv1.HandlerReport, 1),
		endpoints: endpoints{
			log: s.env.Log, metrics: s.env.Metrics, grace: s.config.HandlerGrace, notify: inbox.look, all: map[endpointKey]*endpoint{},
		},
		searches: map[string]*search{},
	}, nil
}

func (s *Service) serve(ctx context.Context, views *views) error {
	listener, err := rpc.Listen(ctx, s.config.Socket)
	if err != nil {
		return err
	}
	server := rpc.NewServer(s.env.Log, s.env.Metrics)
	discoveryv1.RegisterDeviceInventoryServiceServer(server, &deviceInventory{views: views, stopping: ctx.Done()})
	s.env.Log.Info("serving", zap.String("socket", s.config.Socket), zap.String("node", s.config.NodeName))
	return rpc.Serve(ctx, server, listener)
}

func (s *Service) dial(addresses ...string) ([]*grpc.ClientConn, error) {
	conns := make([]*grpc.ClientConn, 0, len(addresses))
	for _, address := range addresses {
		conn, err := rpc.Dial(address, s.env.Metrics)
		if err != nil {
			closeAll(conns)
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

func closeAll(conns []*grpc.ClientConn) {
	for _, conn := range conns {
		_ = conn.Close()
	}
}
