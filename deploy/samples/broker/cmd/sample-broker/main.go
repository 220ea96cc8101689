// Command sample-broker reads the devices of its Pod and serves the result on :8083: GET / as JSON,
// and GET /healthz. With the argument --once it logs the result and exits, for a Job.
package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"akri.sh/deploy/samples/broker"
)

const address = ":8083"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	logger := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	if err := run(ctx, logger); err != nil {
		logger.Error("serving failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, logger *slog.Logger) error {
	b := broker.New(broker.Config{
		Pod:     os.Getenv("HOSTNAME"),
		Node:    os.Getenv("NODE_NAME"),
		Environ: os.Environ(),
		Logger:  logger,
	})
	if slices.Contains(os.Args[1:], "--once") {
		b.LogDevices()
		return nil
	}
	listener, err := net.Listen("tcp", address) //nolint:gosec // Services connect to the address of the Pod
	if err != nil {
		return err
	}
	return b.Run(ctx, listener)
}
