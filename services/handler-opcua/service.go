// Package opcua is the Discovery Handler for OPC UA servers. It queries the URLs of a
// Configuration, and discovery servers among them return further servers.
package opcua

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	details "akri.sh/libs/details/opcua"
	"akri.sh/libs/handler"
	"akri.sh/libs/handler/address"
	"akri.sh/libs/service"
	"akri.sh/services/handler-opcua/internal/client"
	"akri.sh/services/handler-opcua/internal/discovery"
)

// Config holds the flags of the handler.
type Config struct {
	handler.Flags

	Interval    time.Duration `help:"Pause between two requests to the same server." default:"10s"`
	DialTimeout time.Duration `help:"Time limit for connecting to a server." default:"3s"`
	Timeout     time.Duration `help:"Time limit for a response, connecting included." default:"8s"`
	Patience    time.Duration `help:"How long the last response of a server that stopped responding counts." default:"30s"`

	MaxPerHost    int            `help:"Maximum number of servers of one host." default:"64"`
	AllowNetworks []netip.Prefix `help:"Networks that the addresses of servers may be in that a server returns, besides the network of that server." placeholder:"CIDR"`
}

// New returns the handler. Its Run serves until the context ends.
func New(config Config, env service.Env) (*handler.Server, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	options := discovery.Options{
		Client:     client.Client{DialTimeout: config.DialTimeout, Timeout: config.Timeout},
		LookUpHost: net.DefaultResolver.LookupHost,
		Policy:     address.NewPolicy(config.AllowNetworks),
		MaxPerHost: config.MaxPerHost,
		Patience:   config.Patience,
		Observe:    newMetrics(env.Metrics).observe,
	}
	return handler.New(handler.Identity{Name: "opcua", Shared: true}, config.Flags, servers{options, config.Interval}, env)
}

// servers implements handler.Handler and handler.Explainer.
type servers struct {
	options  discovery.Options
	interval time.Duration
}

func (s servers) Discover(ctx context.Context, request handler.Request, send handler.Send) error {
	parsed, err := details.Parse(request.Details)
	if err != nil {
		return handler.Invalid(err)
	}
	poll := handler.Poll{Interval: s.interval, List: discovery.NewPoller(s.options, parsed).List}
	return poll.Discover(ctx, request, send)
}

func (s servers) Explain(ctx context.Context, request handler.Request) ([]*handler.NearMiss, error) {
	return discovery.Explain(ctx, s.options, request)
}

func (c Config) validate() error {
	var problems []error
	for flag, value := range map[string]time.Duration{
		"--interval": c.Interval, "--dial-timeout": c.DialTimeout, "--timeout": c.Timeout,
	} {
		if value <= 0 {
			problems = append(problems, fmt.Errorf("%s %v: must be greater than 0", flag, value))
		}
	}
	if c.Patience < 0 {
		problems = append(problems, fmt.Errorf("--patience %v: must not be negative", c.Patience))
	}
	if c.MaxPerHost < 1 {
		problems = append(problems, fmt.Errorf("--max-per-host %d: must be at least 1", c.MaxPerHost))
	}
	return errors.Join(problems...)
}
