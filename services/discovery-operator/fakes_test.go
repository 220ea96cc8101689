package operator_test

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"akri.sh/libs/broadcast"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	handlerv1 "akri.sh/proto/akri/handler/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
)

// fakeRegistrar has the handlers of the test and the statuses that are reported.
type fakeRegistrar struct {
	registrarv1.UnimplementedRegistrarServiceServer
	mu    sync.Mutex // serializes updates
	table broadcast.Value[[]*registrarv1.Handler]
}

func (r *fakeRegistrar) register(s grpc.ServiceRegistrar) {
	registrarv1.RegisterRegistrarServiceServer(s, r)
}

func (r *fakeRegistrar) WatchHandlers(_ *registrarv1.WatchHandlersRequest, stream grpc.ServerStreamingServer[registrarv1.WatchHandlersResponse]) error {
	for {
		table, changed := r.table.Get()
		if err := stream.Send(&registrarv1.WatchHandlersResponse{Handlers: table}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (r *fakeRegistrar) ListHandlers(context.Context, *registrarv1.ListHandlersRequest) (*registrarv1.ListHandlersResponse, error) {
	table, _ := r.table.Get()
	return &registrarv1.ListHandlersResponse{Handlers: table}, nil
}

func (r *fakeRegistrar) ReportHandlerStatus(_ context.Context, request *registrarv1.ReportHandlerStatusRequest) (*registrarv1.ReportHandlerStatusResponse, error) {
	r.update(func(table []*registrarv1.Handler) []*registrarv1.Handler {
		for i, handler := range table {
			for _, report := range request.GetReports() {
				if report.GetName() != handler.GetName() || report.GetEndpoint() != handler.GetEndpoint() || report.GetRegistration() != handler.GetRegistration() {
					continue
				}
				changed := proto.Clone(handler).(*registrarv1.Handler)
				changed.Status, changed.OfflineSince, changed.OfflineCause = report.GetStatus(), nil, 0
				if changed.GetStatus() == registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE {
					changed.OfflineSince, changed.OfflineCause = timestamppb.Now(), report.GetOfflineCause()
					if handler.GetStatus() == changed.GetStatus() {
						changed.OfflineSince = handler.GetOfflineSince()
					}
				}
				table[i] = changed
			}
		}
		return table
	})
	return &registrarv1.ReportHandlerStatusResponse{}, nil
}

func (r *fakeRegistrar) update(change func([]*registrarv1.Handler) []*registrarv1.Handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	table, _ := r.table.Get()
	r.table.Set(change(slices.Clone(table)))
}

// add registers an endpoint, or registers it again.
func (r *fakeRegistrar) add(name, endpoint string, shared bool) {
	r.update(func(table []*registrarv1.Handler) []*registrarv1.Handler {
		registration := uint64(1)
		table = slices.DeleteFunc(table, func(h *registrarv1.Handler) bool {
			if h.GetEndpoint() == endpoint {
				registration = h.GetRegistration() + 1
				return true
			}
			return false
		})
		kind := registrarv1.EndpointType_ENDPOINT_TYPE_NETWORK
		if filepath.IsAbs(endpoint) {
			kind = registrarv1.EndpointType_ENDPOINT_TYPE_UDS
		}
		return append(table, &registrarv1.Handler{
			Name: name, Endpoint: endpoint, EndpointType: kind, Shared: shared,
			Status: registrarv1.HandlerStatus_HANDLER_STATUS_WAITING, Registration: registration,
		})
	})
}

func (r *fakeRegistrar) clear() {
	r.update(func([]*registrarv1.Handler) []*registrarv1.Handler { return nil })
}

func (r *fakeRegistrar) status(endpoint string) registrarv1.HandlerStatus {
	return r.handler(endpoint).GetStatus()
}

// handler returns the handler at the endpoint, or nil.
func (r *fakeRegistrar) handler(endpoint string) *registrarv1.Handler {
	table, _ := r.table.Get()
	for _, handler := range table {
		if handler.GetEndpoint() == endpoint {
			return handler
		}
	}
	return nil
}

// answer of a fakeHandler: a list, an error, or nothing.
type answer struct {
	ids    []string
	err    error
	silent bool
}

// fakeHandler has an answer for each discoveryDetails. Without an answer it sends an empty list.
type fakeHandler struct {
	discoveryv0.UnimplementedDiscoveryHandlerServer
	handlerv1.UnimplementedExplainServiceServer
	endpoint string
	closest  []*handlerv1.NearMiss // nil: the handler does not explain
	answers  broadcast.Value[map[string]answer]

	mu       sync.Mutex
	requests []*discoveryv0.DiscoverRequest
	open     int
}

func newHandler(t *testing.T) *fakeHandler {
	t.Helper()
	return &fakeHandler{endpoint: filepath.Join(t.TempDir(), "h.sock")}
}

// serve serves like a handler of another project that is killed by stop: with an unmodified gRPC
// server, which binds its socket once and leaves its file behind.
func (h *fakeHandler) serve(t *testing.T) (stop func()) {
	t.Helper()
	_ = os.Remove(h.endpoint)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", h.endpoint)
	require.NoError(t, err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	server := grpc.NewServer()
	discoveryv0.RegisterDiscoveryHandlerServer(server, h)
	if h.closest != nil {
		handlerv1.RegisterExplainServiceServer(server, h)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // fails if it is stopped before
	stop = func() {
		server.Stop()
		serving.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func (h *fakeHandler) Explain(context.Context, *handlerv1.ExplainRequest) (*handlerv1.ExplainResponse, error) {
	return &handlerv1.ExplainResponse{Closest: h.closest}, nil
}

// respond sets the answer to the details, also on open streams.
func (h *fakeHandler) respond(details string, a answer) {
	previous, _ := h.answers.Get()
	answers := map[string]answer{}
	maps.Copy(answers, previous)
	answers[details] = a
	h.answers.Set(answers)
}

// received returns all requests.
func (h *fakeHandler) received() []*discoveryv0.DiscoverRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

// passwords returns the property "password" of all requests.
func (h *fakeHandler) passwords() (all []string) {
	for _, request := range h.received() {
		all = append(all, string(request.GetDiscoveryProperties()["password"].GetVec()))
	}
	return all
}

func (h *fakeHandler) openStreams() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

func (h *fakeHandler) Discover(request *discoveryv0.DiscoverRequest, stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
	h.mu.Lock()
	h.requests = append(h.requests, request)
	h.open++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.open--
		h.mu.Unlock()
	}()
	for {
		answers, changed := h.answers.Get()
		a := answers[request.GetDiscoveryDetails()]
		if a.err != nil {
			return a.err
		}
		if !a.silent {
			response := &discoveryv0.DiscoverResponse{}
			for _, id := range a.ids {
				response.Devices = append(response.Devices, &discoveryv0.Device{Id: id, Properties: map[string]string{"ID": id}})
			}
			if err := stream.Send(response); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// fakeWriter records all reports and responds to them unless it is paused.
type fakeWriter struct {
	instancev1.UnimplementedInstanceServiceServer
	configurations fakeConfigurations

	paused   broadcast.Value[bool]
	refusals []*instancev1.Refusal // in every response

	mu      sync.Mutex
	reports []*instancev1.ReportDevicesRequest
}

func (w *fakeWriter) register(s grpc.ServiceRegistrar) {
	instancev1.RegisterInstanceServiceServer(s, w)
	configurationv1.RegisterConfigurationServiceServer(s, &w.configurations)
}

func (w *fakeWriter) ReportDevices(stream grpc.BidiStreamingServer[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse]) error {
	for {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.reports = append(w.reports, report)
		w.mu.Unlock()
		for paused, changed := w.paused.Get(); paused; paused, changed = w.paused.Get() {
			select {
			case <-changed:
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		}
		if err := stream.Send(&instancev1.ReportDevicesResponse{Revision: report.GetRevision(), Refusals: w.refusals}); err != nil {
			return err
		}
	}
}

func (w *fakeWriter) reportsOf(configuration string) []*instancev1.ReportDevicesRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	var reports []*instancev1.ReportDevicesRequest
	for _, report := range w.reports {
		if report.GetNamespace()+"/"+report.GetConfiguration() == configuration {
			reports = append(reports, report)
		}
	}
	return reports
}

func (w *fakeWriter) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = nil
}
