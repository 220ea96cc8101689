// Package agent is all that a node runs, in one process: registrar, discovery-operator, device-plugin-host,
// config-plugin-allocator and, where wanted, Discovery Handlers. Each is the service that it is when it runs alone, and they meet at
// the same sockets, so that handlers of others register as ever.
package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"akri.sh/libs/service"
	allocator "akri.sh/services/config-plugin-allocator"
	devicepluginhost "akri.sh/services/device-plugin-host"
	operator "akri.sh/services/discovery-operator"
	debugecho "akri.sh/services/handler-debug-echo"
	onvif "akri.sh/services/handler-onvif"
	opcua "akri.sh/services/handler-opcua"
	udev "akri.sh/services/handler-udev"
	"akri.sh/services/registrar"
)

// Config is filled from flags and environment. Every part has the flags that it has alone, after its name.
type Config struct {
	Handlers        []string `help:"Discovery Handlers to run." enum:"debug-echo,onvif,opcua,udev"`
	EnableDebugEcho bool     `help:"The same as debug-echo among --handlers." env:"AKRI_ENABLE_DEBUG_ECHO,ENABLE_DEBUG_ECHO"`

	Registrar             registrar.Config        `embed:"" prefix:"registrar-"`
	DiscoveryOperator     operator.Config         `embed:"" prefix:"discovery-operator-"`
	DevicePluginHost      devicepluginhost.Config `embed:"" prefix:"device-plugin-host-"`
	ConfigPluginAllocator allocator.Config        `embed:"" prefix:"config-plugin-allocator-"`

	DebugEcho debugecho.Config `embed:"" prefix:"debug-echo-"`
	Onvif     onvif.Config     `embed:"" prefix:"onvif-"`
	Opcua     opcua.Config     `embed:"" prefix:"opcua-"`
	Udev      udev.Config      `embed:"" prefix:"udev-"`
}

func (c Config) core() []part {
	return []part{
		partOf("registrar", registrar.New, c.Registrar),
		partOf("discovery-operator", operator.New, c.DiscoveryOperator),
		partOf("config-plugin-allocator", allocator.New, c.ConfigPluginAllocator),
		partOf("device-plugin-host", devicepluginhost.New, c.DevicePluginHost),
	}
}

func (c Config) handlers() []part {
	all := []part{
		partOf("handler-debug-echo", debugecho.New, c.DebugEcho),
		partOf("handler-onvif", onvif.New, c.Onvif),
		partOf("handler-opcua", opcua.New, c.Opcua),
		partOf("handler-udev", udev.New, c.Udev),
	}
	wanted := slices.Clone(c.Handlers)
	if c.EnableDebugEcho {
		wanted = append(wanted, "debug-echo")
	}
	return slices.DeleteFunc(all, func(p part) bool { return !slices.Contains(wanted, strings.TrimPrefix(p.name, "handler-")) })
}

// Service is the agent.
type Service struct {
	core     []core
	handlers []*handler
}

// New checks the configuration of every part. It starts nothing.
func New(config Config, env service.Env) (*Service, error) {
	s := &Service{}
	var problems []error
	for _, p := range config.core() {
		one, err := newCore(p, env)
		s.core, problems = append(s.core, one), append(problems, err)
	}
	for _, p := range config.handlers() {
		one, err := newHandler(p, env)
		s.handlers, problems = append(s.handlers, one), append(problems, err)
	}
	return s, errors.Join(problems...)
}

// Run works until ctx ends or a part that is not a handler does: the node is of no use without it, and a new process is the same
// remedy as for that service alone. Handlers that end are started again.
func (s *Service) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, one := range s.core {
		group.Go(func() error { return one.run(ctx) })
	}
	for _, one := range s.handlers {
		group.Go(func() error { one.keepRunning(ctx); return nil })
	}
	return group.Wait()
}
