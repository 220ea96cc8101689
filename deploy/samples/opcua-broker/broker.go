// Package opcuabroker is a broker for OPC UA servers: it monitors nodes of the server of its Pod
// and serves their values over HTTP, as metrics and over gRPC, and publishes them to MQTT by
// choice.
package opcuabroker

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"akri.sh/libs/service"
	"akri.sh/proto/opcuanode"

	"akri.sh/deploy/samples/opcua-broker/internal/mqtt"
	"akri.sh/deploy/samples/opcua-broker/internal/opcua"
	"akri.sh/deploy/samples/opcua-broker/internal/values"
)

// maxRequest limits the bytes of a request. That of GetValue is empty.
const maxRequest = 4 << 10

// Broker serves the values of an OPC UA server.
type Broker struct {
	settings  Settings
	client    *opcua.Client
	publisher *mqtt.Publisher // nil without MQTT
	pages     http.Handler
	api       *grpc.Server
}

// New returns a broker.
func New(settings Settings, log *slog.Logger) *Broker {
	registry := service.NewRegistry()
	counters := newCounters(registry)
	b := &Broker{settings: settings, api: grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest))}
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

	opcuanode.RegisterOpcuaNodeServer(b.api, node{url: settings.OPCUA.URL, store: store})
	b.pages = handler(settings.OPCUA.URL, store, b.client, registry)
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
	group.Go(func() error { return b.settings.Server.Serve(ctx, listener, b.client.Ready, b.pages, b.api) })
	return group.Wait()
}
