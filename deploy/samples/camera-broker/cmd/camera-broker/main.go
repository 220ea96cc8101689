// Command camera-broker serves the frames of the camera UDEV_DEVNODE on :8083: GET / as a video
// stream, GET /snapshot.jpg as an image, and GET /healthz.
package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	camerabroker "akri.sh/deploy/samples/camera-broker"
)

const address = ":8083"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	if err := run(ctx, log); err != nil {
		log.Error("serving the camera failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger) error {
	settings, err := camerabroker.Read(os.Getenv)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address) //nolint:gosec // Services connect to the address of the Pod
	if err != nil {
		return err
	}
	return camerabroker.New(settings, log).Run(ctx, listener)
}
