// Package tracing sends OpenTelemetry traces of two paths: from the list of a Discovery Handler to
// the write of an Instance, and from the call of the kubelet to the write of a slot. It is off
// unless the standard environment variable OTEL_EXPORTER_OTLP_ENDPOINT, or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, has the URL of a collector. The other OTEL_* variables of the
// OTLP exporter, sampler and batch processor apply, too. Spans have names and counts, and no
// properties of devices.
package tracing

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"akri.sh/libs/service"
	"akri.sh/libs/version"
)

// flushTimeout is how long the end of a service waits for a collector.
const flushTimeout = 2 * time.Second

// traced are the methods with spans. Calls of other methods are streams, which would be one span
// for hours, or are not part of a path.
var traced = map[string]bool{
	"Allocate": true, "NodePrepareResources": true, "NodeUnprepareResources": true, "ReserveSlots": true, "ReleaseSlots": true,
}

// Enabled reports whether a collector is configured.
func Enabled() bool {
	return os.Getenv("OTEL_SDK_DISABLED") != "true" &&
		(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "")
}

// Service returns create for a service that sends traces while it runs, if they are enabled.
func Service[C any, R service.Runner](name string, create func(C, service.Env) (R, error)) func(C, service.Env) (service.Runner, error) {
	return func(config C, env service.Env) (service.Runner, error) {
		runner, err := create(config, env)
		if err != nil || !Enabled() {
			return runner, err
		}
		return traceRunner{name, env.Log, runner}, nil
	}
}

type traceRunner struct {
	name string
	log  *zap.Logger
	service.Runner
}

// Run implements service.Runner.
func (r traceRunner) Run(ctx context.Context) error {
	otel.SetErrorHandler(&errorLog{log: r.log})
	stop, err := start(ctx, r.name)
	if err != nil {
		return err
	}
	defer func() {
		if err := stop(); err != nil {
			r.log.Warn("sending the last traces failed", zap.Error(err))
		}
	}()
	return r.Runner.Run(ctx)
}

// errorInterval is the least time between two logged errors. A collector that is not reachable
// causes one every five seconds.
const errorInterval = time.Minute

// errorLog logs errors of OpenTelemetry.
type errorLog struct {
	log    *zap.Logger
	mu     sync.Mutex
	logged time.Time
}

// Handle implements otel.ErrorHandler.
func (l *errorLog) Handle(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.logged) >= errorInterval {
		l.logged = now
		l.log.Warn("sending traces failed", zap.Error(err))
	}
}

// start sends spans until stop is called. An unreachable collector delays nothing.
func start(ctx context.Context, name string) (stop func() error, err error) {
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("create trace exporter: %w", err)
	}
	// Attributes in OTEL_RESOURCE_ATTRIBUTES, such as the name of the Pod, take precedence.
	described, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", name), attribute.String("service.version", version.Version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe the service for traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(described))
	otel.SetTracerProvider(provider)
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		return provider.Shutdown(ctx)
	}, nil
}

// ServerOptions returns the options of a gRPC server whose calls have spans.
func ServerOptions() []grpc.ServerOption {
	if !Enabled() {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(options()...))}
}

// DialOptions returns the options of a connection whose calls have spans.
func DialOptions() []grpc.DialOption {
	if !Enabled() {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(options()...))}
}

func options() []otelgrpc.Option {
	return []otelgrpc.Option{
		otelgrpc.WithPropagators(propagation.TraceContext{}),
		otelgrpc.WithFilter(func(call *stats.RPCTagInfo) bool {
			return traced[call.FullMethodName[strings.LastIndexByte(call.FullMethodName, '/')+1:]]
		}),
	}
}

// Start starts a span. Without a parent in ctx it is the first span of a trace.
func Start(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	return otel.Tracer("akri.sh").Start(ctx, name, trace.WithAttributes(attributes...))
}

// Child starts a span if ctx has one. Otherwise the returned span does nothing.
func Child(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	if parent := trace.SpanFromContext(ctx); !parent.SpanContext().IsValid() {
		return ctx, parent
	}
	return Start(ctx, name, attributes...)
}

// End ends a span, with its error if err is not nil.
func End(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

const header = "traceparent"

// Parent returns the span of ctx for a field of a message, in the form of the W3C header
// traceparent. It is empty if there is none.
func Parent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[header]
}

// WithParent returns a context whose spans are children of a span of another process. An invalid
// parent is ignored.
func WithParent(ctx context.Context, parent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{header: parent})
}
