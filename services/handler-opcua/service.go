// Package opcua is the Discovery Handler for OPC UA servers: those at the URLs that a Configuration lists, and those that
// the discovery servers among them know.
package opcua

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"akri.sh/libs/handler"
	"akri.sh/libs/service"
	"akri.sh/services/handler-opcua/internal/client"
)

// Config is what the handler is told by flags and environment.
type Config struct {
	handler.Flags

	Interval    time.Duration `help:"Pause between two questions to the same server." default:"10s"`
	DialTimeout time.Duration `help:"How long a server may take to accept a connection." default:"3s"`
	Timeout     time.Duration `help:"How long a server may take to answer, connecting included." default:"8s"`
	Patience    time.Duration `help:"How long the last answer of a server that stopped answering still counts." default:"30s"`
}

// New returns the handler, ready to run.
func New(config Config, env service.Env) (*handler.Server, error) {
	var problems []error
	for flag, value := range map[string]time.Duration{
		"--interval": config.Interval, "--dial-timeout": config.DialTimeout, "--timeout": config.Timeout,
	} {
		if value <= 0 {
			problems = append(problems, fmt.Errorf("%s %v: want more than 0", flag, value))
		}
	}
	if config.Patience < 0 {
		problems = append(problems, fmt.Errorf("--patience %v: want 0 or more", config.Patience))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	finder := finder{
		client:  client.Client{DialTimeout: config.DialTimeout, Timeout: config.Timeout},
		lookUp:  net.DefaultResolver.LookupHost,
		metrics: newMetrics(env.Metrics), patience: config.Patience,
	}
	watch := func(ctx context.Context, request handler.Request, send handler.Send) error {
		wanted, err := parse(request)
		if err != nil {
			return err
		}
		poll := handler.Poll{Interval: config.Interval, List: finder.search(wanted).list}
		return poll.Discover(ctx, request, send)
	}
	return handler.New(handler.Identity{Name: "opcua", Shared: true}, config.Flags, handler.Watch(watch), env)
}
