// Command camera-viewer shows the cameras of the brokers behind a headless Service in one page, on
// :8083. See the README.
package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"akri.sh/deploy/samples/camera-broker/internal/viewer"
	"akri.sh/libs/broker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	if err := run(ctx, log); err != nil {
		log.Error("serving the cameras failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger) error {
	server, err := broker.ReadServer(os.Getenv)
	options := viewer.Options{
		Host: os.Getenv("CAMERAS"), Port: cmp.Or(os.Getenv("CAMERAS_PORT"), "8083"),
		AuthoritiesFile: os.Getenv("CAMERAS_CA_FILE"), TokenFile: os.Getenv("CAMERAS_TOKEN_FILE"),
		Log: log, Resolve: net.DefaultResolver.LookupHost,
	}
	if options.Host == "" {
		err = errors.Join(err, errors.New("CAMERAS is not set: name the headless Service of the brokers, such as cameras.default.svc"))
	}
	if options.AuthoritiesFile == "" && !server.AllowPlainText {
		err = errors.Join(err, errors.New("CAMERAS_CA_FILE is not set: name the file with the certificates of the brokers, or set ALLOW_PLAIN_TEXT=true"))
	}
	if err != nil {
		return err
	}
	v, err := viewer.New(options)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDRESS"), ":8083"))
	if err != nil {
		return err
	}
	return server.Serve(ctx, listener, func() error { return nil }, v.Handler(), nil)
}
