// Package service holds what every Akri process shares: flags, logger, metrics, health checks,
// signals and the exit code.
package service

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"akri.sh/libs/admin"
	"akri.sh/libs/log"
	"akri.sh/libs/version"
)

// Env is what a process provides to its service.
type Env struct {
	Log     *zap.Logger
	Metrics prometheus.Registerer
	Health  *admin.Health
	// Guard serves the metrics if the constructor of the service enables it.
	Guard *admin.Guard
}

// Runner is a service. Run works until ctx ends or the service fails.
type Runner interface {
	Run(ctx context.Context) error
}

// common are the flags of every service.
type common struct {
	AdminAddress string           `help:"Address of /metrics, /healthz and /readyz. Empty disables them." default:"${admin_address}" placeholder:"HOST:PORT"`
	LogLevel     string           `help:"Log level: ${enum}." enum:"debug,info,warn,error" default:"info"`
	LogFormat    string           `help:"Log format: ${enum}." enum:"json,text" default:"json"`
	Version      kong.VersionFlag `help:"Print the version and exit." env:"-"`
}

// flags are those of a service with this Config.
type flags[C any] struct {
	Common common `embed:""`
	Config C      `embed:""`
}

// Command is a task of a binary besides its service, such as `discovery-operator try`. It has the
// flags and the environment variables of the service.
type Command[C any] struct {
	Name, Help string
	// Run gets a context that ends with SIGINT or SIGTERM. Its error is written to the standard
	// error, and the exit code is then 1.
	Run func(ctx context.Context, config C) error
}

// Main creates a service and runs it until it fails or the process gets SIGINT or SIGTERM; a second
// signal kills the process. The fields of the service's Config are flags (`--socket-dir`) and
// environment variables (`AKRI_SOCKET_DIR`), declared by kong's struct tags. If the first argument
// names a command, Main runs that instead. Main is the whole main function of a service.
//
// A name such as `agent relay` is that of a second service of a binary, see Called: its flags
// follow the argument.
func Main[C any, R Runner](name, description string, create func(C, Env) (R, error), commands ...Command[C]) {
	var cli flags[C]
	var options []kong.Option
	for i, command := range commands {
		if i == 0 { // without a command, the service runs
			options = append(options, kong.DynamicCommand("run", "Run the service.", "", &struct{}{}, `default:"1"`))
		}
		options = append(options, kong.DynamicCommand(command.Name, command.Help, "", &struct{}{}))
	}
	parsed, err := newParser(name, description, &cli, options...).Parse(os.Args[len(strings.Fields(name)):])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\nRun %s --help for the list of flags.\n", name, err, name)
		os.Exit(2)
	}
	for _, command := range commands {
		if command.Name == parsed.Command() {
			runCommand(func(ctx context.Context) error { return command.Run(ctx, cli.Config) })
			return
		}
	}
	logger, err := log.New(name, cli.Common.LogLevel, cli.Common.LogFormat)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	limitGarbage()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	logger.Info("starting", zap.String("version", version.Version))
	if err := serve(ctx, cli.Common.AdminAddress, logger, func(env Env) (Runner, error) {
		return create(cli.Config, env)
	}); err != nil {
		logger.Error("stopped", zap.Error(err))
		os.Exit(1)
	}
	logger.Info("stopped")
}

// Called reports whether the first argument of the process is the name of a second service, which
// has flags, metrics and health checks of its own. It runs in another container of the Pod.
func Called(name string) bool { return len(os.Args) > 1 && os.Args[1] == name }

func runCommand(run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Flags returns the flags of a service with this Config, for its documentation.
func Flags[C any]() []*kong.Flag {
	var cli flags[C]
	return newParser("", "", &cli).Model.Flags
}

func newParser(name, description string, cli any, options ...kong.Option) *kong.Kong {
	parser, err := kong.New(cli, append(options,
		kong.Name(name), kong.Description(description), kong.DefaultEnvars("AKRI"), kong.ValueFormatter(describeFlag),
		kong.Vars{
			"version":       name + " " + version.Version,
			"admin_address": ":" + cmp.Or(os.Getenv("METRICS_PORT"), "8080"), // upstream Akri's manifests set METRICS_PORT
		})...)
	if err != nil {
		panic(err) // a wrong struct tag
	}
	return parser
}

// describeFlag adds the default where kong's help does not show it: it shows the placeholder
// instead, and no value for a bool.
func describeFlag(value *kong.Value) string {
	if value.HasDefault && (value.Tag.PlaceHolder != "" || value.IsBool()) {
		value.Help += " Default: " + value.Default + "."
	}
	return kong.DefaultHelpValueFormatter(value)
}

// limitGarbage makes the collector run at 1.5 times the live heap unless GOGC is set. A node
// service has 1 MiB of live heap; with Go's default it would grow to 4 MiB before the first
// collection. The charts set GOMEMLIMIT to the limit of the container. A tenth of it is for what Go
// does not count, such as buffers of the kernel for connections.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}

func serve(ctx context.Context, address string, logger *zap.Logger, create func(Env) (Runner, error)) error {
	metrics := NewRegistry()
	env := Env{Log: logger, Metrics: metrics, Health: &admin.Health{}, Guard: &admin.Guard{}}
	runner, err := create(env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	open := prometheus.Gatherer(metrics)
	if env.Guard.Enabled() {
		open = nil
		group.Go(func() error { return env.Guard.Serve(ctx, metrics) })
	}
	group.Go(func() error { return admin.Serve(ctx, address, admin.Handler(env.Health, open)) })
	group.Go(func() error {
		defer cancel() // the admin servers stop when the service ends
		return runner.Run(ctx)
	})
	return group.Wait()
}

// NewRegistry returns a metrics registry with the collectors of the process, the Go runtime and the
// build.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "akri_build_info",
		Help:        "Always 1. The labels identify the build.",
		ConstLabels: prometheus.Labels{"version": version.Version, "go": runtime.Version()},
	})
	build.Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}
