package soak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"akri.sh/libs/broadcast"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/cluster"
)

// localHandler is the name of the Discovery Handler of devices that one node sees.
const localHandler = "soakLocal"

// registerInterval is how often the handler registers, because the registrar forgets it when it
// restarts.
const registerInterval = 2 * time.Second

// localDevices is a Discovery Handler on one node. It uses only the v0 API.
type localDevices struct {
	discoveryv0.UnimplementedDiscoveryHandlerServer

	node   cluster.Node
	server *grpc.Server
	list   broadcast.Value[[]*discoveryv0.Device]
}

// startLocal serves the handler until stop and registers it repeatedly.
func startLocal(ctx context.Context, node cluster.Node) (*localDevices, error) {
	path := filepath.Join(node.AkriDir(), localHandler+".sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l := &localDevices{node: node, server: grpc.NewServer()}
	discoveryv0.RegisterDiscoveryHandlerServer(l.server, l)
	go func() { _ = l.server.Serve(listener) }()
	return l, nil
}

// set replaces the devices of the node.
func (l *localDevices) set(present map[place]int) {
	list := []*discoveryv0.Device{}
	for p, state := range present {
		if p.node == l.node.Name() {
			list = append(list, &discoveryv0.Device{Id: p.device, Properties: map[string]string{localProperty: strconv.Itoa(state)}})
		}
	}
	l.list.Set(list)
}

// Discover implements v0.DiscoveryHandler.
func (l *localDevices) Discover(_ *discoveryv0.DiscoverRequest, stream discoveryv0.DiscoveryHandler_DiscoverServer) error {
	for {
		list, changed := l.list.Get()
		if err := stream.Send(&discoveryv0.DiscoverResponse{Devices: list}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// register registers the handler until ctx ends. An error is expected while the registrar is down.
func (l *localDevices) register(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(l.node.AkriDir(), "agent-registration.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		return fmt.Errorf("dial registrar: %w", err)
	}
	defer conn.Close()
	client := discoveryv0.NewRegistrationClient(conn)
	return every(ctx, registerInterval, func() {
		ctx, cancel := context.WithTimeout(ctx, registerInterval)
		defer cancel()
		_, _ = client.RegisterDiscoveryHandler(ctx, &discoveryv0.RegisterDiscoveryHandlerRequest{
			Name: localHandler, Endpoint: "/var/lib/akri/" + localHandler + ".sock",
			EndpointType: discoveryv0.RegisterDiscoveryHandlerRequest_UDS,
		})
	})
}

// startLocals runs the handler on all nodes until ctx ends.
func (s *soak) startLocals(ctx context.Context, background *sync.WaitGroup) error {
	s.locals = map[string]*localDevices{}
	for _, node := range s.mesh.Cluster.Nodes() {
		l, err := startLocal(ctx, node)
		if err != nil {
			return err
		}
		s.locals[node.Name()] = l
		context.AfterFunc(ctx, l.server.Stop)
		background.Go(func() { _ = l.register(ctx) })
	}
	return nil
}
