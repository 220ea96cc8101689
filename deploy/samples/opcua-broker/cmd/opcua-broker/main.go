// Command opcua-broker monitors nodes of the OPC UA server OPCUA_DISCOVERY_URL and serves their
// values on ADDRESS: GET /values as JSON, GET /metrics, OpcuaNode/GetValue over gRPC, and GET
// /healthz.
package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	opcuabroker "akri.sh/deploy/samples/opcua-broker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	if err := run(ctx, log); err != nil {
		log.Error("serving the OPC UA server failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger) error {
	settings, err := opcuabroker.Read(os.Environ())
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", settings.Address)
	if err != nil {
		return err
	}
	return opcuabroker.New(settings, log).Run(ctx, listener)
}
