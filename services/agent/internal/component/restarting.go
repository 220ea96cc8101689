package component

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"akri.sh/libs/admin"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
)

const (
	// maxBackoff is the longest delay before a restart. A component that ran for longer restarts
	// without delay.
	maxBackoff = 30 * time.Second
	// checkInterval is the interval of the kubelet's liveness probes.
	checkInterval = 10 * time.Second
	checkTimeout  = 2 * time.Second
	// stopTimeout is longer than the 6 s after which libs/rpc leaves calls alone, and shorter than
	// the 10 s after which the kubelet kills the process.
	stopTimeout = 8 * time.Second
)

// errHangs is the problem of a component whose health check does not return.
var errHangs = errors.New("the health check does not return")

// Restarting is a component that is restarted after each exit. One that hangs cannot be stopped,
// because Go cannot end a goroutine. It is reported, and neither ends nor delays other components.
type Restarting struct {
	component Component
	log       *zap.Logger
	restarts  prometheus.Counter
	healthy   prometheus.Gauge
	current   atomic.Pointer[run]

	mu      sync.Mutex
	problem error // why the component does not work; nil if it does
}

// run is one run of a component, with the metrics and health checks that this run registers.
type run struct {
	runner  service.Runner // nil after the exit
	metrics *prometheus.Registry
	health  *admin.Health
}

// NewRestarting creates the component's service and adds its readiness checks to those of the
// process. Its liveness checks are not added: the kubelet would restart all components.
func NewRestarting(c Component, env service.Env) (*Restarting, error) {
	child := c.childEnv(env)
	r := &Restarting{component: c, log: child.Log,
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "akri_embedded_handler_restarts_total", Help: "Restarts of a handler after it exited.",
		}),
		healthy: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "akri_embedded_handler_healthy", Help: "1 while the handler runs and responds on its socket, otherwise 0.",
		}),
	}
	child.Metrics.MustRegister(r.restarts, r.healthy, r)
	env.Health.AddReadiness(c.Name, r.ready)
	return r, r.prepare()
}

// prepare creates the service of the next run.
func (r *Restarting) prepare() (err error) {
	next := &run{metrics: prometheus.NewRegistry(), health: &admin.Health{}}
	next.runner, err = r.component.create(service.Env{Log: r.log, Metrics: next.metrics, Health: next.health})
	r.current.Store(next)
	return err
}

// Run runs the service that NewRestarting created, and a new one after each exit, until ctx ends.
// It returns even if the service does not: after stopTimeout the service is left to the end of the
// process.
func (r *Restarting) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.keep(ctx)
	}()
	<-ctx.Done()
	select {
	case <-done:
	case <-time.After(stopTimeout):
		r.log.Error("handler did not stop; it ends with the process", zap.Duration("timeout", stopTimeout))
	}
}

func (r *Restarting) keep(ctx context.Context) {
	rpc.Keep(ctx, r.log, maxBackoff, func(ctx context.Context, healthy func()) error {
		start := time.Now()
		err := r.runOnce(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.report(fmt.Errorf("restarting after exit: %w", err))
		r.current.Store(&run{metrics: prometheus.NewRegistry(), health: &admin.Health{}})
		r.log.Error("handler exited; restarting it", zap.Error(err))
		if time.Since(start) > maxBackoff {
			healthy()
		}
		return err
	})
}

func (r *Restarting) runOnce(ctx context.Context) error {
	if r.current.Load().runner == nil {
		r.restarts.Inc()
		if err := r.prepare(); err != nil {
			return err
		}
	}
	current := r.current.Load()
	r.report(nil)
	checks, cancel := context.WithCancel(ctx)
	var checking sync.WaitGroup
	checking.Go(func() { r.checkHealth(checks, current.health) })
	err := current.runner.Run(ctx)
	cancel()
	checking.Wait()
	if err == nil {
		err = errExited
	}
	return err
}

// checkHealth reports the results of the liveness checks until ctx ends. While a check does not
// return, no other one starts.
func (r *Restarting) checkHealth(ctx context.Context, health *admin.Health) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	result, running := make(chan error, 1), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if running {
				r.checked(ctx, errHangs)
				continue
			}
			running = true
			go func() {
				ctx, cancel := context.WithTimeout(ctx, checkTimeout)
				defer cancel()
				result <- health.Live(ctx)
			}()
		case err := <-result:
			running = false
			r.checked(ctx, err)
		}
	}
}

// checked reports the result of a health check and logs changes. It ignores results after the end
// of ctx, which makes checks fail.
func (r *Restarting) checked(ctx context.Context, problem error) {
	if ctx.Err() != nil {
		return
	}
	switch changed := r.report(problem); {
	case changed && problem != nil:
		r.log.Error("handler does not respond; other components continue; restart the agent if this lasts", zap.Error(problem))
	case changed:
		r.log.Info("handler responds again")
	}
}

// report stores why the component does not work, or nil if it does. It returns whether that is new.
func (r *Restarting) report(problem error) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed = (problem == nil) != (r.problem == nil)
	r.problem = problem
	if problem == nil {
		r.healthy.Set(1)
	} else {
		r.healthy.Set(0)
	}
	return changed
}

// ready is the readiness check.
func (r *Restarting) ready(ctx context.Context) error {
	r.mu.Lock()
	problem := r.problem
	r.mu.Unlock()
	if problem != nil {
		return problem
	}
	return r.current.Load().health.Ready(ctx)
}

// Describe sends nothing, because the metrics change with each run.
func (r *Restarting) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of the current run.
func (r *Restarting) Collect(metrics chan<- prometheus.Metric) {
	r.current.Load().metrics.Collect(metrics)
}
