// Package service is what every Akri process shares: flags, logger, metrics, health, signals and the exit code.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"akri.sh/libs/admin"
	"akri.sh/libs/flags"
	"akri.sh/libs/log"
	"akri.sh/libs/version"
)

const helpWidth = 120

// Env is what a process gives to the service that it runs.
type Env struct {
	Log     *zap.Logger
	Metrics prometheus.Registerer
	Health  *admin.Health
}

// common are the flags that every service has.
type common struct {
	AdminAddress string `help:"Address of /metrics, /healthz and /readyz; empty: none." placeholder:"HOST:PORT"`
	LogLevel     string `help:"Least important messages to log." enum:"debug,info,warn,error" default:"info"`
}

type cli[C any] struct {
	Common common
	Config C
}

// Main runs a service with its Config filled from flags (`--socket-dir`) and environment (`AKRI_SOCKET_DIR`), until it
// fails or the process is told to stop. A second signal kills. It is the whole of a service's main function.
func Main[C any](name, description string, run func(context.Context, C, Env) error) {
	var parsed cli[C]
	parsed.Common.AdminAddress = ":" + cmp.Or(os.Getenv("METRICS_PORT"), "8080") // Akri's manifests say the port alone
	parse(name, description, &parsed)
	logger, err := log.New(name, parsed.Common.LogLevel)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	saveMemory()
	klog.SetLogger(zapr.NewLogger(logger)) // client-go logs through klog
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	logger.Info("starting", zap.String("version", version.Version))
	if err := serve(ctx, parsed.Common.AdminAddress, logger, func(ctx context.Context, env Env) error {
		return run(ctx, parsed.Config, env)
	}); err != nil {
		logger.Error("stopped", zap.Error(err))
		os.Exit(1)
	}
	logger.Info("stopped")
}

// saveMemory has the process keep less garbage, unless GOGC says how much: as Go comes, one that needs 1 MiB grows to 4 before
// it collects any.
func saveMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// parse ends the process where there is nothing to run.
func parse(name, description string, config any) {
	set := flags.New(name, config)
	printVersion := set.Bool("version", false, "Print the version and exit.")
	set.Usage = func() {
		fmt.Printf("%s\n\nUsage: %s [flags]\n\n%s", description, name, set.FlagUsagesWrapped(helpWidth))
	}
	switch err := set.Parse(os.Args[1:]); {
	case errors.Is(err, pflag.ErrHelp):
		os.Exit(0)
	case *printVersion:
		fmt.Println(name, version.Version)
		os.Exit(0)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n%s --help lists the flags\n", name, err, name)
		os.Exit(2)
	}
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
