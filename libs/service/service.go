// Package service is what every Akri process shares: flags, logger, metrics, health, signals and the exit code.
package service

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"akri.sh/libs/admin"
	"akri.sh/libs/log"
	"akri.sh/libs/version"
)

// Env is what a process gives to the service that it runs.
type Env struct {
	Log     *zap.Logger
	Metrics prometheus.Registerer
	Health  *admin.Health
}

// Flags are those that every service has.
type Flags struct {
	AdminAddress string           `help:"Address of /metrics, /healthz and /readyz; empty: none." default:":${metrics_port}" placeholder:"HOST:PORT"`
	LogLevel     string           `help:"Least important messages to log: ${enum}." enum:"debug,info,warn,error" default:"info"`
	Version      kong.VersionFlag `help:"Print the version and exit."`
}

type cli[C any] struct {
	Flags  `embed:""`
	Config C `embed:""`
}

// Main runs a service with its Config filled from flags (`--socket-dir`) and environment (`AKRI_SOCKET_DIR`), until it
// fails or the process is told to stop. A second signal kills. It is the whole of a service's main function.
func Main[C any](name, description string, run func(context.Context, C, Env) error) {
	var flags cli[C]
	kong.Parse(&flags,
		kong.Name(name),
		kong.Description(description),
		kong.DefaultEnvars("AKRI"),
		kong.UsageOnError(),
		kong.Vars{
			"version":      name + " " + version.Version,
			"metrics_port": cmp.Or(os.Getenv("METRICS_PORT"), "8080"), // Akri's manifests say the port alone
		},
	)
	logger, err := log.New(name, flags.LogLevel)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	klog.SetLogger(zapr.NewLogger(logger)) // client-go logs through klog
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	logger.Info("starting", zap.String("version", version.Version))
	if err := serve(ctx, flags.AdminAddress, logger, func(ctx context.Context, env Env) error {
		return run(ctx, flags.Config, env)
	}); err != nil {
		logger.Error("stopped", zap.Error(err))
		os.Exit(1)
	}
	logger.Info("stopped")
}

func serve(ctx context.Context, address string, logger *zap.Logger, run func(context.Context, Env) error) error {
	registry := NewRegistry()
	env := Env{Log: logger, Metrics: registry, Health: &admin.Health{}}
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return admin.Serve(ctx, address, admin.Handler(env.Health, registry)) })
	group.Go(func() error {
		// A service that ends takes the admin server with it.
		defer cancel()
		return run(ctx, env)
	})
	return group.Wait()
}

// NewRegistry returns a metrics registry that knows the process and the build.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "akri_build_info",
		Help:        "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": version.Version, "go": goVersion()},
	})
	build.Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

func goVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.GoVersion
	}
	return ""
}
