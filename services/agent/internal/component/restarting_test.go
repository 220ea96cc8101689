package component_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"akri.sh/libs/admin"
	"akri.sh/libs/metricstest"
	"akri.sh/libs/service"
	"akri.sh/services/agent/internal/component"
)

// runnerFunc is a service.
type runnerFunc func(context.Context) error

func (f runnerFunc) Run(ctx context.Context) error { return f(ctx) }

// restarting is a running component with the environment of its process.
type restarting struct {
	health  *admin.Health
	metrics *prometheus.Registry
	logs    *observer.ObservedLogs
	cancel  context.CancelFunc
	stopped chan struct{}
}

// start runs a service with a liveness check as a component.
func start(t *testing.T, run runnerFunc, live admin.Check) restarting {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	env := service.Env{Log: zap.New(core), Metrics: prometheus.NewRegistry(), Health: &admin.Health{}}
	create := func(_ struct{}, child service.Env) (runnerFunc, error) {
		child.Health.AddLiveness("socket", live)
		return run, nil
	}
	r, err := component.NewRestarting(component.New("handler-x", create, struct{}{}), env)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s := restarting{env.Health, env.Metrics.(*prometheus.Registry), logs, cancel, make(chan struct{})}
	go func() { defer close(s.stopped); r.Run(ctx) }()
	return s
}

// healthy returns the metric akri_embedded_handler_healthy.
func (r restarting) healthy(t *testing.T) float64 {
	t.Helper()
	families, err := r.metrics.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "akri_embedded_handler_healthy" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.Fail(t, "no metric")
	return 0
}

func untilStopped(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func TestHangingHandlerIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		live func(release <-chan struct{}) admin.Check
		want string
	}{
		"check fails": {func(release <-chan struct{}) admin.Check {
			return func(ctx context.Context) error {
				select {
				case <-release:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}, "handler-x: socket: context deadline exceeded"},
		"check does not return": {func(release <-chan struct{}) admin.Check {
			return func(context.Context) error {
				<-release
				return nil
			}
		}, "handler-x: the health check does not return"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				r := start(t, untilStopped, test.live(release))
				synctest.Wait()
				require.NoError(t, r.health.Ready(t.Context()))
				require.InDelta(t, 1, r.healthy(t), 0)

				<-time.After(time.Hour)
				require.NoError(t, r.health.Live(t.Context()), "the kubelet must not restart the process")
				require.EqualError(t, r.health.Ready(t.Context()), test.want)
				require.InDelta(t, 0, r.healthy(t), 0)
				require.Equal(t, 1, r.logs.FilterMessageSnippet("handler does not respond").Len())

				close(release)
				<-time.After(time.Minute)
				require.NoError(t, r.health.Ready(t.Context()))
				require.InDelta(t, 1, r.healthy(t), 0)
				require.Equal(t, 1, r.logs.FilterMessage("handler responds again").Len())
				r.cancel()
				<-r.stopped
				require.Equal(t, 2, r.logs.Len())
			})
		})
	}
}

// The grace period of the chart's Pods is 10 s.
func TestHangingHandlerDoesNotDelayShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		r := start(t, func(context.Context) error { <-release; return nil }, func(context.Context) error { return nil })
		synctest.Wait()
		started := time.Now()
		r.cancel()
		<-r.stopped
		require.Less(t, time.Since(started), 10*time.Second)
		require.Equal(t, 1, r.logs.FilterMessageSnippet("handler did not stop").Len())
	})
}

func TestExitedHandlerIsNotHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, func(context.Context) error { return errors.New("broken") }, func(context.Context) error { return nil })
		<-time.After(time.Hour)
		require.EqualError(t, r.health.Ready(t.Context()), "handler-x: restarting after exit: broken")
		require.NoError(t, r.health.Live(t.Context()))
		require.InDelta(t, 0, r.healthy(t), 0)
		require.Positive(t, testutil.CollectAndCount(r.metrics, "akri_embedded_handler_restarts_total"))
		r.cancel()
		<-r.stopped
	})
}

func TestMetricsAreDocumented(t *testing.T) {
	registry := prometheus.NewRegistry()
	create := func(struct{}, service.Env) (runnerFunc, error) {
		return func(context.Context) error { return nil }, nil
	}
	env := service.Env{Log: zap.NewNop(), Metrics: registry, Health: &admin.Health{}}
	_, err := component.NewRestarting(component.New("handler-x", create, struct{}{}), env)
	require.NoError(t, err)
	metricstest.Check(t, registry, "../../../../docs/metrics.md", "agent")
}
