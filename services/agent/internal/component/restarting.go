package component

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"akri.sh/libs/admin"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
)

// maxBackoff is the longest delay before a restart. A component that ran for longer restarts
// without delay.
const maxBackoff = 30 * time.Second

// Restarting is a component that is restarted after each exit.
type Restarting struct {
	component Component
	log       *zap.Logger
	restarts  prometheus.Counter
	current   atomic.Pointer[run]
}

// run is one run of a component, with the metrics and health checks that this run registers.
type run struct {
	runner  service.Runner
	err     error // why there is no runner
	metrics *prometheus.Registry
	health  *admin.Health
}

// NewRestarting creates the component's service and adds its health checks to those of the process.
func NewRestarting(c Component, env service.Env) (*Restarting, error) {
	child := c.childEnv(env)
	r := &Restarting{component: c, log: child.Log, restarts: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "akri_embedded_handler_restarts_total", Help: "Restarts of a handler after it exited.",
	})}
	child.Metrics.MustRegister(r.restarts, r)
	env.Health.AddLiveness(c.Name, r.live)
	env.Health.AddReadiness(c.Name, r.ready)
	return r, r.prepare()
}

// prepare creates the service of the next run.
func (r *Restarting) prepare() error {
	next := &run{metrics: prometheus.NewRegistry(), health: &admin.Health{}}
	next.runner, next.err = r.component.create(service.Env{Log: r.log, Metrics: next.metrics, Health: next.health})
	r.current.Store(next)
	return next.err
}

// Run runs the service that NewRestarting created, and a new one after each exit, until ctx ends.
func (r *Restarting) Run(ctx context.Context) {
	rpc.Keep(ctx, r.log, maxBackoff, func(ctx context.Context, healthy func()) error {
		start := time.Now()
		err := r.runOnce(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.log.Error("handler exited; restarting it", zap.Error(err))
		if time.Since(start) > maxBackoff {
			healthy()
		}
		return err
	})
}

func (r *Restarting) runOnce(ctx context.Context) error {
	if r.current.Load().err != nil {
		r.restarts.Inc()
		if err := r.prepare(); err != nil {
			return err
		}
	}
	err := r.current.Load().runner.Run(ctx)
	if err == nil {
		err = errExited
	}
	r.current.Store(&run{err: err, metrics: prometheus.NewRegistry(), health: &admin.Health{}})
	return err
}

// live fails only while the service runs: a restart of the process does not help while it does not.
func (r *Restarting) live(ctx context.Context) error { return r.current.Load().health.Live(ctx) }

// ready also fails while the service does not run.
func (r *Restarting) ready(ctx context.Context) error {
	current := r.current.Load()
	if current.err != nil {
		return fmt.Errorf("restarting after exit: %w", current.err)
	}
	return current.health.Ready(ctx)
}

// Describe sends nothing, because the metrics change with each run.
func (r *Restarting) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of the current run.
func (r *Restarting) Collect(metrics chan<- prometheus.Metric) {
	r.current.Load().metrics.Collect(metrics)
}
