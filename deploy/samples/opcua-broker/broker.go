// Package opcuabroker is a broker for OPC UA servers: it monitors nodes of the server of its Pod
// and serves their values over HTTP, as metrics and over gRPC, and publishes them to MQTT by
// choice.
package opcuabroker

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"akri.sh/libs/service"
	"akri.sh/proto/opcuanode"

	"akri.sh/deploy/samples/opcua-broker/internal/mqtt"
	"akri.sh/deploy/samples/opcua-broker/internal/opcua"
	"akri.sh/deploy/samples/opcua-broker/internal/serve"
	"akri.sh/deploy/samples/opcua-broker/internal/values"
)

// errNotReady is the text of /readyz, which anyone may read. The reason is in the log and in
// /values.
var errNotReady = errors.New("no values: GET /values returns the reason")

// Broker serves the values of an OPC UA server.
type Broker struct {
	client    *opcua.Client
	publisher *mqtt.Publisher // nil without MQTT
	server    serve.Server
}

// New returns a broker.
func New(settings Settings, log *slog.Logger) *Broker {
	registry := service.NewRegistry()
	counters := newCounters(registry)
	b := &Broker{}
	changed := func(values.Value) {}
	if settings.MQTT != nil {
		b.publisher = mqtt.New(*settings.MQTT, log, counters.published)
		changed = b.publisher.Publish
		registry.MustRegister(mqttConnected(b.publisher))
	}
	store := values.NewStore(settings.OPCUA.Nodes, func(value values.Value) {
		counters.changes.WithLabelValues(value.Name).Inc()
		changed(value)
	})
	b.client = opcua.New(settings.OPCUA, store, log, counters.attempted)
	registry.MustRegister(collector{store, b.client})

	grpcServer := grpc.NewServer()
	opcuanode.RegisterOpcuaNodeServer(grpcServer, node{url: settings.OPCUA.URL, store: store})
	b.server = serve.Server{
		Settings: settings.Serve, Refused: counters.refused, GRPC: grpcServer,
		HTTP: handler(settings.OPCUA.URL, store, b.client, registry),
		Ready: func() error {
			if b.client.Ready() != nil {
				return errNotReady
			}
			return nil
		},
	}
	return b
}

// Run serves on the listener until ctx ends. A server that is away is not an error.
func (b *Broker) Run(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		b.client.Run(ctx)
		return nil
	})
	if b.publisher != nil {
		group.Go(func() error { return b.publisher.Run(ctx) })
	}
	group.Go(func() error { return b.server.Run(ctx, listener) })
	return group.Wait()
}
