// Package operator implements the discovery-operator. It requests the devices of Configurations
// from the node's Discovery Handlers and serves and reports the inventory of the node.
package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	"akri.sh/services/discovery-operator/internal/configurations"
	"akri.sh/services/discovery-operator/internal/coordinator"
	"akri.sh/services/discovery-operator/internal/devicenodes"
	"akri.sh/services/discovery-operator/internal/discovery"
	"akri.sh/services/discovery-operator/internal/inventory"
	"akri.sh/services/discovery-operator/internal/report"
)

// Config of the service.
type Config struct {
	Socket              string        `help:"Address of the device inventory." default:"unix:///run/akri/discovery-operator/discovery-operator.sock" placeholder:"ADDRESS"`
	Registrar           string        `help:"Address of the registrar." default:"unix:///run/akri/registrar/registrar.sock" placeholder:"ADDRESS"`
	InstanceWriter      string        `help:"Address of the instance-writer." default:"dns:///akri-instance-writer:9443" placeholder:"ADDRESS"`
	InstanceWriterCA    string        `help:"File with the CA certificates that verify instance-writer. Empty: none, if its address is a Unix socket." placeholder:"FILE"`
	InstanceWriterToken string        `help:"File with the service account token that is sent to instance-writer. Empty: none, if its address is a Unix socket." placeholder:"FILE"`
	NodeName            string        `help:"Name of this node." env:"AKRI_NODE_NAME,AGENT_NODE_NAME" placeholder:"NAME"`
	HandlerGrace        time.Duration `help:"Time that devices are kept without a handler that can be reached." default:"5m"`

	MaxDevices          int      `help:"Maximum number of devices of one handler endpoint for one Configuration." default:"1000"`
	AllowHostPaths      []string `help:"Host paths that devices may mount or use as device nodes, with all paths below them." placeholder:"PATH"`
	AllowDeviceClasses  []string `help:"Classes of device nodes that devices may use although they give control of the node, such as tpm or ttyS." placeholder:"CLASS"`
	AllowProperties     []string `help:"Dangerous names that properties of devices may have, such as LD_PRELOAD." placeholder:"NAME"`
	HostMounts          string   `help:"File with the mounts of the node, as of its first process. Disks of these mounts are not offered." default:"/proc/1/mountinfo" placeholder:"FILE"`
	MetricsWithoutNames bool     `help:"Leave the label configuration of the metrics empty, because anyone who reaches them can read them."`

	AllowFromHandlers inventory.AllowLists `help:"The only device classes and beginnings of names of properties of a handler, as JSON: {\"lamp\": {\"deviceClasses\": [\"ttyUSB\"], \"propertyPrefixes\": [\"LAMP_\"]}}." placeholder:"JSON"`

	// ProbeInterval is the time between two probes of a connection to a handler, for tests.
	ProbeInterval time.Duration `kong:"-"`
	// DiskInterval is the time after which the use of disks is examined again, for tests.
	DiskInterval time.Duration `kong:"-"`
	// Sys replaces /sys in tests.
	Sys string `kong:"-"`
	// Dial replaces connections to handlers in tests.
	Dial discovery.Dialer `kong:"-"`
	// Writer replaces the connection to instance-writer if components of a process share it.
	Writer grpc.ClientConnInterface `kong:"-"`
}

// Service is the discovery-operator.
type Service struct {
	config   Config
	env      service.Env
	identity []grpc.DialOption
}

// New returns a service, or all problems of the configuration. It starts nothing.
func New(config Config, env service.Env) (*Service, error) {
	var problems []error
	if config.NodeName == "" {
		problems = append(problems, errors.New("--node-name: must be the name of this node"))
	}
	if config.HandlerGrace <= 0 {
		problems = append(problems, fmt.Errorf("--handler-grace %v: must be more than 0", config.HandlerGrace))
	}
	if config.MaxDevices < 1 {
		problems = append(problems, fmt.Errorf("--max-devices %d: must be at least 1", config.MaxDevices))
	}
	for _, path := range config.AllowHostPaths {
		if !filepath.IsAbs(path) {
			problems = append(problems, fmt.Errorf("--allow-host-paths %q: must be an absolute path", path))
		}
	}
	identity, err := rpc.Identity{CAFile: config.InstanceWriterCA, TokenFile: config.InstanceWriterToken}.DialOptions(config.InstanceWriter)
	if err != nil {
		problems = append(problems, fmt.Errorf("--instance-writer-ca, --instance-writer-token: %w", err))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return &Service{config: config, env: env, identity: identity}, nil
}

// Run works until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	registrar, err := rpc.Dial(s.config.Registrar, s.env.Metrics)
	if err != nil {
		return err
	}
	defer registrar.Close()
	writer := s.config.Writer
	if writer == nil {
		own, err := rpc.DialReplicas(s.config.InstanceWriter, s.env.Metrics, s.identity...)
		if err != nil {
			return err
		}
		defer func() { _ = own.Close() }()
		writer = own
	}
	devices := &broadcast.Value[inventory.Snapshot]{}
	known := configurations.New(s.env.Log, s.config.NodeName, writer)
	s.env.Metrics.MustRegister(deviceCount(devices, s.config.MetricsWithoutNames))
	s.env.Health.AddReadiness("configurations", known.CheckReady)
	s.env.Health.AddLiveness("directory of the registrar", rpc.CheckDirectory(s.config.Registrar))

	coordinating := s.coordinator(known, registrar, devices)
	s.env.Health.AddLiveness("directories of handlers", coordinating.CheckDirectories)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.serve(ctx, devices) })
	group.Go(func() error { return coordinating.Run(ctx) })
	group.Go(func() error { report.New(s.env.Log, s.config.NodeName, devices, writer).Run(ctx); return nil })
	return group.Wait()
}

func (s *Service) coordinator(
	known *configurations.Client, registrar *grpc.ClientConn, devices *broadcast.Value[inventory.Snapshot],
) *coordinator.Coordinator {
	return coordinator.New(coordinator.Options{
		Log: s.env.Log, Metrics: s.env.Metrics, Node: s.config.NodeName,
		ProbeInterval:  cmp.Or(s.config.ProbeInterval, discovery.ProbeInterval),
		DiskInterval:   cmp.Or(s.config.DiskInterval, coordinator.DiskInterval),
		Dial:           s.config.Dial,
		Configurations: known, Registrar: registrar, Inventory: devices,
		Discoverer: &discovery.Discoverer{
			Log: s.env.Log, Metrics: discovery.NewMetrics(s.env.Metrics, s.config.MetricsWithoutNames), Grace: s.config.HandlerGrace,
			Policy: s.config.policy(),
		},
		Host: s.config.host(),
	})
}

// policy returns what devices may request.
func (c Config) policy() inventory.Policy {
	return inventory.Policy{
		MaxDevices: c.MaxDevices, AllowHostPaths: c.AllowHostPaths, AllowProperties: c.AllowProperties,
		AllowFromHandlers: c.AllowFromHandlers,
	}
}

// host returns the files that show the disks that the node uses.
func (c Config) host() devicenodes.Host {
	return devicenodes.Host{Sys: cmp.Or(c.Sys, "/sys"), Swaps: "/proc/swaps", Mounts: c.HostMounts, AllowClasses: c.AllowDeviceClasses}
}

func (s *Service) serve(ctx context.Context, devices *broadcast.Value[inventory.Snapshot]) error {
	listener, err := rpc.ListenPrivate(ctx, s.env.Log, s.config.Socket)
	if err != nil {
		return err
	}
	s.env.Health.AddLiveness("discovery-operator socket", listener.Check)
	server := rpc.NewServer(s.env.Log, s.env.Metrics)
	discoveryv1.RegisterDeviceInventoryServiceServer(server, &inventoryServer{inventory: devices, stopping: ctx.Done()})
	s.env.Log.Info("serving", zap.String("socket", s.config.Socket), zap.String("node", s.config.NodeName))
	return rpc.Serve(ctx, server, listener)
}
