package agent

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

// longestPause between two runs of a handler; one that ran for longer than that is started again at once.
const longestPause = 30 * time.Second

// handler is a Discovery Handler that is started again whenever it ends.
type handler struct {
	part     part
	log      *zap.Logger
	restarts prometheus.Counter
	current  atomic.Pointer[attempt]
}

// attempt is one run of a handler. Metrics and checks end with it: the next run brings its own.
type attempt struct {
	runner  runner
	ended   error // why there is no runner
	metrics *prometheus.Registry
	health  *admin.Health
}

func newHandler(p part, env service.Env) (*handler, error) {
	own := envOf(p.name, env)
	h := &handler{part: p, log: own.Log, restarts: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "akri_embedded_handler_restarts_total", Help: "How often a handler was started again after it had ended.",
	})}
	own.Metrics.MustRegister(h.restarts, h)
	env.Health.AddLiveness(p.name, h.live)
	env.Health.AddReadiness(p.name, h.ready)
	return h, h.prepare()
}

// prepare makes the handler, not yet running.
func (h *handler) prepare() error {
	next := &attempt{metrics: prometheus.NewRegistry(), health: &admin.Health{}}
	next.runner, next.ended = h.part.make(service.Env{Log: h.log, Metrics: next.metrics, Health: next.health})
	h.current.Store(next)
	return next.ended
}

// keepRunning runs the handler that New prepared, and makes a new one whenever it ends.
func (h *handler) keepRunning(ctx context.Context) {
	rpc.Keep(ctx, h.log, longestPause, func(ctx context.Context, healthy func()) error {
		began := time.Now()
		err := h.runOnce(ctx)
		if ctx.Err() != nil {
			return nil
		}
		h.log.Error("handler ended; it is started again", zap.Error(err))
		if time.Since(began) > longestPause {
			healthy()
		}
		return err
	})
}

func (h *handler) runOnce(ctx context.Context) error {
	if h.current.Load().ended != nil {
		h.restarts.Inc()
		if err := h.prepare(); err != nil {
			return err
		}
	}
	err := h.current.Load().runner.Run(ctx)
	if err == nil {
		err = errEnded
	}
	h.current.Store(&attempt{ended: err, metrics: prometheus.NewRegistry(), health: &admin.Health{}})
	return err
}

// live fails while the handler runs and says that only a new process helps.
func (h *handler) live(ctx context.Context) error { return h.current.Load().health.Live(ctx) }

// ready fails also while it does not run. Nobody asks this process for anything but it shows.
func (h *handler) ready(ctx context.Context) error {
	current := h.current.Load()
	if current.ended != nil {
		return fmt.Errorf("it is started again, for it ended: %w", current.ended)
	}
	return current.health.Ready(ctx)
}

// Describe tells nothing in advance: which metrics there are changes with each run.
func (h *handler) Describe(chan<- *prometheus.Desc) {}

// Collect shows the metrics of the present run.
func (h *handler) Collect(collected chan<- prometheus.Metric) {
	h.current.Load().metrics.Collect(collected)
}
