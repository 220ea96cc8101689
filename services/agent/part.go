package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"akri.sh/libs/admin"
	"akri.sh/libs/service"
)

// runner is a service that was made.
type runner interface {
	Run(ctx context.Context) error
}

// part is a service that can be made.
type part struct {
	name string
	make func(service.Env) (runner, error)
}

func partOf[C any, R runner](name string, make func(C, service.Env) (R, error), config C) part {
	return part{name: name, make: func(env service.Env) (runner, error) {
		made, err := make(config, env)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return made, nil
	}}
}

// envOf is what a part is given of the process: its messages and metrics say which part they are of, and its checks are its own.
func envOf(name string, env service.Env) service.Env {
	return service.Env{
		Log:     env.Log.With(zap.String("part", name)),
		Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"part": name}, env.Metrics),
		Health:  &admin.Health{},
	}
}

var errEnded = errors.New("it ended without a reason")

// core is a part that the process does not live without.
type core struct {
	name   string
	runner runner
}

func newCore(p part, env service.Env) (core, error) {
	own := envOf(p.name, env)
	made, err := p.make(own)
	env.Health.AddLiveness(p.name, own.Health.Live)
	env.Health.AddReadiness(p.name, own.Health.Ready)
	return core{p.name, made}, err
}

func (c core) run(ctx context.Context) error {
	err := c.runner.Run(ctx)
	if err == nil && ctx.Err() == nil {
		err = errEnded
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}
