package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/rpc"
	discoveryv0 "akri.sh/proto/v0"
)

// errNoHandler is returned while no handler of the name is registered.
var errNoHandler = errors.New("no Discovery Handler of this name is registered")

// device is a device that a handler has reported.
type device struct {
	*discoveryv0.Device
	shared bool
}

func (d device) digest(node string) string { return akriv0.Digest(d.GetId(), node, d.shared) }

// environment returns the properties of the device. Those of the Configuration replace them.
func (d device) environment(brokerProperties map[string]string) map[string]string {
	merged := maps.Clone(d.GetProperties())
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, brokerProperties)
	return merged
}

// discovery has the registered handlers, and the devices of each Configuration. A Configuration is
// known by its name only, without the namespace.
type discovery struct {
	discoveryv0.UnimplementedRegistrationServer
	log *zap.Logger
	// changed is called with the name and namespace of a Configuration whose devices have changed.
	changed func(namespace, name string)

	mu       sync.Mutex
	handlers map[string]map[string]*discoveryv0.RegisterDiscoveryHandlerRequest // by name and endpoint
	requests map[string]*request
}

// request is the discovery for one Configuration. Edits of the Configuration do not change it.
type request struct {
	namespace, name, handler string
	message                  *discoveryv0.DiscoverRequest
	ctx                      context.Context //nolint:containedctx // it ends the streams of the request
	cancel                   context.CancelFunc
	lists                    map[string][]device // by endpoint
}

func newDiscovery(log *zap.Logger, changed func(namespace, name string)) *discovery {
	return &discovery{
		log: log, changed: changed,
		handlers: map[string]map[string]*discoveryv0.RegisterDiscoveryHandlerRequest{}, requests: map[string]*request{},
	}
}

// RegisterDiscoveryHandler adds the handler, and requests from it the devices of the existing
// requests with its name. If that fails, nothing repeats it until the handler registers again.
func (d *discovery) RegisterDiscoveryHandler(_ context.Context, handler *discoveryv0.RegisterDiscoveryHandlerRequest) (*discoveryv0.Empty, error) {
	d.log.Info("handler registered", zap.String("handler", handler.GetName()), zap.String("endpoint", handler.GetEndpoint()))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.handlers[handler.GetName()] == nil {
		d.handlers[handler.GetName()] = map[string]*discoveryv0.RegisterDiscoveryHandlerRequest{}
	}
	d.handlers[handler.GetName()][handler.GetEndpoint()] = handler
	for _, r := range d.requests {
		if r.handler != handler.GetName() {
			continue
		}
		if err := d.query(r, handler); err != nil {
			d.log.Warn("query failed", zap.String("configuration", r.name), zap.Error(err))
		}
	}
	return &discoveryv0.Empty{}, nil
}

// devices returns the devices of the Configuration, and whether it has a request.
func (d *discovery) devices(configuration string) ([]device, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.requests[configuration]
	if r == nil {
		return nil, false
	}
	byID := map[string]device{}
	for _, list := range r.lists {
		for _, found := range list {
			byID[found.GetId()] = found
		}
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b device) int { return strings.Compare(a.GetId(), b.GetId()) }), true
}

// start asks all handlers of the Configuration for devices. It fails if one of them fails.
func (d *discovery) start(ctx context.Context, configuration *akriv0.Configuration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	handlers := d.handlers[configuration.Spec.DiscoveryHandler.Name]
	if len(handlers) == 0 {
		return errNoHandler
	}
	properties := map[string]*discoveryv0.ByteData{}
	for _, property := range configuration.Spec.DiscoveryHandler.DiscoveryProperties {
		if property.Value != nil {
			properties[property.Name] = &discoveryv0.ByteData{Vec: []byte(*property.Value)}
		}
	}
	r := &request{
		namespace: configuration.Namespace, name: configuration.Name, handler: configuration.Spec.DiscoveryHandler.Name,
		message: &discoveryv0.DiscoverRequest{
			DiscoveryDetails: configuration.Spec.DiscoveryHandler.DiscoveryDetails, DiscoveryProperties: properties,
		},
		lists: map[string][]device{},
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	for _, handler := range handlers {
		if err := d.query(r, handler); err != nil {
			r.cancel()
			return err
		}
	}
	d.requests[r.name] = r
	return nil
}

// terminate ends the discovery for a Configuration.
func (d *discovery) terminate(configuration string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.requests[configuration]; r != nil {
		r.cancel()
		delete(d.requests, configuration)
	}
}

// query opens a stream to a handler. A handler that cannot be reached is forgotten.
func (d *discovery) query(r *request, handler *discoveryv0.RegisterDiscoveryHandlerRequest) error {
	address := "unix://" + handler.GetEndpoint()
	if handler.GetEndpointType() == discoveryv0.RegisterDiscoveryHandlerRequest_NETWORK {
		address = strings.TrimPrefix(handler.GetEndpoint(), "http://")
	}
	conn, err := rpc.Dial(address, prometheus.NewRegistry(), rpc.WithoutKeepalive())
	if err != nil {
		return err
	}
	stream, err := discoveryv0.NewDiscoveryHandlerClient(conn).Discover(r.ctx, r.message)
	if err != nil {
		delete(d.handlers[handler.GetName()], handler.GetEndpoint())
		return errors.Join(fmt.Errorf("query %s at %s: %w", handler.GetName(), handler.GetEndpoint(), err), conn.Close())
	}
	r.lists[handler.GetEndpoint()] = nil
	go func() {
		defer conn.Close()
		d.receive(r, handler, stream)
	}()
	return nil
}

// receive stores each list of devices until the stream ends. The devices of the endpoint are then
// gone at once, and with the last endpoint the whole request.
func (d *discovery) receive(
	r *request, handler *discoveryv0.RegisterDiscoveryHandlerRequest, stream grpc.ServerStreamingClient[discoveryv0.DiscoverResponse],
) {
	for {
		response, err := stream.Recv()
		if err != nil {
			d.log.Info("stream ended", zap.String("configuration", r.name), zap.Error(err))
			break
		}
		list := []device{}
		for _, found := range response.GetDevices() {
			list = append(list, device{found, handler.GetShared()})
		}
		d.mu.Lock()
		r.lists[handler.GetEndpoint()] = list
		d.mu.Unlock()
		d.changed(r.namespace, r.name)
	}

	d.mu.Lock()
	delete(r.lists, handler.GetEndpoint())
	if len(r.lists) == 0 && d.requests[r.name] == r {
		delete(d.requests, r.name)
	}
	d.mu.Unlock()
	d.changed(r.namespace, r.name)
}
