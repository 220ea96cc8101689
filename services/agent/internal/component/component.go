// Package component runs services as components of one process.
package component

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"akri.sh/libs/admin"
	"akri.sh/libs/service"
)

// Component creates a service.
type Component struct {
	Name string

	create func(service.Env) (service.Runner, error)
}

// New returns a Component that calls create with the config.
func New[C any, R service.Runner](name string, create func(C, service.Env) (R, error), config C) Component {
	return Component{Name: name, create: func(env service.Env) (service.Runner, error) {
		runner, err := create(config, env)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return runner, nil
	}}
}

// childEnv returns the environment of a component: its messages and metrics carry its name, and its
// health checks are separate.
func (c Component) childEnv(env service.Env) service.Env {
	return service.Env{
		Log:     env.Log.With(zap.String("part", c.Name)),
		Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"part": c.Name}, env.Metrics),
		Health:  &admin.Health{},
	}
}

var errExited = errors.New("exited unexpectedly")

// Required is a component whose exit ends the process.
type Required struct {
	name   string
	runner service.Runner
}

// NewRequired creates the component's service and adds its health checks to those of the process.
func NewRequired(c Component, env service.Env) (*Required, error) {
	child := c.childEnv(env)
	runner, err := c.create(child)
	env.Health.AddLiveness(c.Name, child.Health.Live)
	env.Health.AddReadiness(c.Name, child.Health.Ready)
	return &Required{c.Name, runner}, err
}

// Run returns nil only if ctx ended.
func (r *Required) Run(ctx context.Context) error {
	err := r.runner.Run(ctx)
	if err == nil && ctx.Err() == nil {
		err = errExited
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return nil
}
