package tracing_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
)

// Each test with traces is a service: OpenTelemetry has one provider for a process.
func run(t *testing.T, env service.Env, work func(ctx context.Context) error) error {
	t.Helper()
	create := func(work runner, _ service.Env) (runner, error) { return work, nil }
	traced, err := tracing.Service("test", create)(work, env)
	require.NoError(t, err)
	return traced.Run(t.Context())
}

type runner func(ctx context.Context) error

func (r runner) Run(ctx context.Context) error { return r(ctx) }

func TestDisabled(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	require.Empty(t, tracing.ServerOptions())
	require.Empty(t, tracing.DialOptions())
	require.NoError(t, run(t, service.Env{}, func(ctx context.Context) error {
		ctx, span := tracing.Start(ctx, "first")
		defer tracing.End(span, nil)
		require.False(t, span.IsRecording())
		require.Empty(t, tracing.Parent(ctx))
		return nil
	}))
}

// A collector that cannot be reached causes warnings, and no error of the service.
func TestUnreachableCollector(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	require.Len(t, tracing.ServerOptions(), 1)
	require.Len(t, tracing.DialOptions(), 1)
	core, logs := observer.New(zap.WarnLevel)
	failed := errors.New("failed")
	var parent string
	err = run(t, service.Env{Log: zap.New(core)}, func(ctx context.Context) error {
		_, none := tracing.Child(ctx, "child without parent")
		require.False(t, none.SpanContext().IsValid())
		ctx, first := tracing.Start(ctx, "first")
		parent = tracing.Parent(ctx)
		received := tracing.WithParent(context.Background(), parent)
		_, second := tracing.Child(received, "second")
		require.Equal(t, first.SpanContext().TraceID(), second.SpanContext().TraceID())
		tracing.End(second, failed)
		tracing.End(first, nil)
		require.False(t, trace.SpanContextFromContext(tracing.WithParent(context.Background(), "invalid")).IsValid())
		return nil
	})
	require.NoError(t, err)
	require.Regexp(t, "^00-[0-9a-f]{32}-[0-9a-f]{16}-01$", parent)
	require.Equal(t, 1, logs.FilterMessage("sending the last traces failed").Len())
}
