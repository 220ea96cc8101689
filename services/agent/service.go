// Package agent runs all node services in one process: registrar, discovery-operator, the services
// of device plugins or of Dynamic Resource Allocation or both, and, by flag, Discovery Handlers.
// Each component is the same package as the service of its name. The components communicate over
// the same sockets as separate services, so custom handlers can register.
package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/node"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	"akri.sh/services/agent/internal/component"
	allocator "akri.sh/services/config-plugin-allocator"
	devicepluginhost "akri.sh/services/device-plugin-host"
	operator "akri.sh/services/discovery-operator"
	drakubeletplugin "akri.sh/services/dra-kubelet-plugin"
	debugecho "akri.sh/services/handler-debug-echo"
	onvif "akri.sh/services/handler-onvif"
	opcua "akri.sh/services/handler-opcua"
	udev "akri.sh/services/handler-udev"
	"akri.sh/services/registrar"
)

// Config of the service. The flags of a component are prefixed with its name.
type Config struct {
	Handlers        []string `help:"Discovery Handlers to run: ${enum}." enum:"debug-echo,onvif,opcua,udev"`
	Resources       string   `help:"How Pods get devices: ${enum}. With dra the agent runs dra-kubelet-plugin instead of device-plugin-host and config-plugin-allocator, with auto all three, and instance-writer states which one offers devices." enum:"devicePlugin,dra,auto" default:"devicePlugin"`
	EnableDebugEcho bool     `help:"Upstream Akri's name for --handlers=debug-echo." env:"AKRI_ENABLE_DEBUG_ECHO,ENABLE_DEBUG_ECHO"`

	Registrar             registrar.Config        `embed:"" prefix:"registrar-"`
	DiscoveryOperator     operator.Config         `embed:"" prefix:"discovery-operator-"`
	DevicePluginHost      devicepluginhost.Config `embed:"" prefix:"device-plugin-host-"`
	ConfigPluginAllocator allocator.Config        `embed:"" prefix:"config-plugin-allocator-"`
	DRAKubeletPlugin      drakubeletplugin.Config `embed:"" prefix:"dra-kubelet-plugin-"`

	DebugEcho debugecho.Config `embed:"" prefix:"debug-echo-"`
	Onvif     onvif.Config     `embed:"" prefix:"onvif-"`
	Opcua     opcua.Config     `embed:"" prefix:"opcua-"`
	Udev      udev.Config      `embed:"" prefix:"udev-"`
}

// writer is how a component reaches instance-writer.
type writer struct{ address, ca, token string }

// shareWriter dials the one connection to instance-writer that the components use if their flags
// for it are equal. instance-writer then has one TLS connection per node instead of one for each
// component.
func (c *Config) shareWriter(env service.Env) (*rpc.Replicas, error) {
	operator := writer{c.DiscoveryOperator.InstanceWriter, c.DiscoveryOperator.InstanceWriterCA, c.DiscoveryOperator.InstanceWriterToken}
	host := writer{c.DevicePluginHost.InstanceWriter, c.DevicePluginHost.InstanceWriterCA, c.DevicePluginHost.InstanceWriterToken}
	plugin := writer{c.DRAKubeletPlugin.InstanceWriter, c.DRAKubeletPlugin.InstanceWriterCA, c.DRAKubeletPlugin.InstanceWriterToken}
	if c.devicePlugins() && host != operator || c.dynamic() && plugin != operator {
		return nil, nil
	}
	identity, err := rpc.Identity{CAFile: operator.ca, TokenFile: operator.token}.DialOptions(operator.address)
	if err != nil {
		return nil, nil // the components return the error
	}
	labeled := prometheus.WrapRegistererWith(prometheus.Labels{"part": "agent"}, env.Metrics)
	conn, err := rpc.DialReplicas(operator.address, labeled, append(tracing.DialOptions(), identity...)...)
	if err != nil {
		return nil, err
	}
	c.DiscoveryOperator.Writer, c.DevicePluginHost.Writer, c.DRAKubeletPlugin.Writer = conn, conn, conn
	return conn, nil
}

// devicePlugins and dynamic report whether the agent runs the components of each form.
func (c Config) devicePlugins() bool { return c.Resources != akriv0.ResourcesDRA }
func (c Config) dynamic() bool {
	return c.Resources == akriv0.ResourcesDRA || c.Resources == node.ResourcesAuto
}

// required returns the components without which a node cannot work.
func (c Config) required() []component.Component {
	c.DevicePluginHost.Resources, c.DRAKubeletPlugin.Resources = c.Resources, c.Resources
	components := []component.Component{
		component.New("registrar", registrar.New, c.Registrar),
		component.New("discovery-operator", operator.New, c.DiscoveryOperator),
	}
	if c.devicePlugins() {
		components = append(components,
			component.New("config-plugin-allocator", allocator.New, c.ConfigPluginAllocator),
			component.New("device-plugin-host", devicepluginhost.New, c.DevicePluginHost))
	}
	if c.dynamic() {
		components = append(components, component.New("dra-kubelet-plugin", drakubeletplugin.New, c.DRAKubeletPlugin))
	}
	return components
}

// handlers returns the enabled Discovery Handlers.
func (c Config) handlers() []component.Component {
	all := []component.Component{
		component.New("handler-debug-echo", debugecho.New, c.DebugEcho),
		component.New("handler-onvif", onvif.New, c.Onvif),
		component.New("handler-opcua", opcua.New, c.Opcua),
		component.New("handler-udev", udev.New, c.Udev),
	}
	return slices.DeleteFunc(all, func(handler component.Component) bool {
		enabled := c.EnableDebugEcho && handler.Name == "handler-debug-echo"
		return !enabled && !slices.ContainsFunc(c.Handlers, func(name string) bool { return handler.Name == "handler-"+name })
	})
}

// Service is the agent.
type Service struct {
	required []*component.Required
	handlers []*component.Restarting
	// writer is the connection to instance-writer. It is nil if the components have their own.
	writer *rpc.Replicas
}

// New checks the configuration of all components. It opens no connection and starts no component.
func New(config Config, env service.Env) (*Service, error) {
	writer, err := config.shareWriter(env)
	s, errs := &Service{writer: writer}, []error{err}
	for _, c := range config.required() {
		required, err := component.NewRequired(c, env)
		s.required, errs = append(s.required, required), append(errs, err)
	}
	for _, c := range config.handlers() {
		handler, err := component.NewRestarting(c, env)
		s.handlers, errs = append(s.handlers, handler), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		s.closeWriter()
		return nil, err
	}
	return s, nil
}

func (s *Service) closeWriter() {
	if s.writer != nil {
		_ = s.writer.Close()
	}
}

// Run runs all components until ctx ends or a required component exits: the kubelet then restarts
// the process, as it would restart the separate service. A handler that exits is restarted within
// the process.
func (s *Service) Run(ctx context.Context) error {
	defer s.closeWriter()
	group, ctx := errgroup.WithContext(ctx)
	for _, required := range s.required {
		group.Go(func() error { return required.Run(ctx) })
	}
	for _, handler := range s.handlers {
		group.Go(func() error { handler.Run(ctx); return nil })
	}
	return group.Wait()
}
