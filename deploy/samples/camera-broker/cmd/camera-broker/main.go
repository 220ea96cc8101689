// Command camera-broker serves the video of a camera on :8083, and metrics on :8080. See the
// README.
package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	camerabroker "akri.sh/deploy/samples/camera-broker"
)

const headerTimeout = 5 * time.Second

// decodeCommand is the argument of the process that decodes H.264. The broker starts it.
const decodeCommand = "decode"

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	if len(os.Args) == 2 && os.Args[1] == decodeCommand {
		if err := camerabroker.Decode(os.Stdin, os.Stdout); err != nil {
			slog.New(slog.NewJSONHandler(os.Stderr, nil)).Error("decoding failed", "error", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	if err := run(ctx, log); err != nil {
		log.Error("serving the camera failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger) error {
	settings, err := camerabroker.Read(os.Environ())
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	broker, err := camerabroker.New(settings, registry, log, executable, decodeCommand)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", settings.Address)
	if err != nil {
		return err
	}
	metrics := &http.Server{
		Addr: settings.MetricsAddress, ReadHeaderTimeout: headerTimeout, Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	}
	defer context.AfterFunc(ctx, func() { _ = metrics.Close() })()
	go func() {
		if err := metrics.ListenAndServe(); ctx.Err() == nil {
			log.Error("metrics are not served", "error", err)
		}
	}()
	return broker.Run(ctx, listener)
}
