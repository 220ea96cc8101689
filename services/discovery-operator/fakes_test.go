package operator_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"akri.sh/libs/rpctest"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
)

// changing is a value that streams follow.
type changing[T any] struct {
	mu      sync.Mutex
	value   T
	changed chan struct{}
}

func (c *changing[T]) get() (T, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.value, c.changed
}

func (c *changing[T]) update(change func(*T)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.value)
	if c.changed != nil {
		close(c.changed)
	}
	c.changed = make(chan struct{})
}

// fakeRegistrar keeps the table that a test gives it, and the statuses that are reported.
type fakeRegistrar struct {
	registrarv1.UnimplementedRegistrarServiceServer
	table changing[[]*registrarv1.Handler]
}

func (r *fakeRegistrar) register(s grpc.ServiceRegistrar) {
	registrarv1.RegisterRegistrarServiceServer(s, r)
}

func (r *fakeRegistrar) WatchHandlers(_ *registrarv1.WatchHandlersRequest, stream grpc.ServerStreamingServer[registrarv1.WatchHandlersResponse]) error {
	for {
		table, changed := r.table.get()
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

func (r *fakeRegistrar) ReportHandlerStatus(_ context.Context, request *registrarv1.ReportHandlerStatusRequest) (*registrarv1.ReportHandlerStatusResponse, error) {
	r.table.update(func(table *[]*registrarv1.Handler) {
		next := slices.Clone(*table)
		for i, handler := range next {
			for _, report := range request.GetReports() {
				if report.GetName() != handler.GetName() || report.GetEndpoint() != handler.GetEndpoint() || report.GetRegistration() != handler.GetRegistration() {
					continue
				}
				changed := proto.Clone(handler).(*registrarv1.Handler)
				changed.Status, changed.OfflineSince = report.GetStatus(), nil
				if changed.GetStatus() == registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE {
					changed.OfflineSince = timestamppb.Now()
				}
				next[i] = changed
			}
		}
		*table = next
	})
	return &registrarv1.ReportHandlerStatusResponse{}, nil
}

// add registers an endpoint, or registers it again.
func (r *fakeRegistrar) add(name, endpoint string, shared bool) {
	r.table.update(func(table *[]*registrarv1.Handler) {
		registration := uint64(1)
		next := slices.DeleteFunc(slices.Clone(*table), func(h *registrarv1.Handler) bool {
			if h.GetEndpoint() == endpoint {
				registration = h.GetRegistration() + 1
				return true
			}
			return false
		})
		*table = append(next, &registrarv1.Handler{
			Name: name, Endpoint: endpoint, EndpointType: registrarv1.EndpointType_ENDPOINT_TYPE_UDS, Shared: shared,
			Status: registrarv1.HandlerStatus_HANDLER_STATUS_WAITING, Registration: registration,
		})
	})
}

func (r *fakeRegistrar) clear() {
	r.table.update(func(table *[]*registrarv1.Handler) { *table = nil })
}

func (r *fakeRegistrar) status(endpoint string) registrarv1.HandlerStatus {
	table, _ := r.table.get()
	for _, handler := range table {
		if handler.GetEndpoint() == endpoint {
			return handler.GetStatus()
		}
	}
	return registrarv1.HandlerStatus_HANDLER_STATUS_UNSPECIFIED
}

// answer is what a fakeHandler says to some details: a list, an error, or nothing.
type answer struct {
	ids    []string
	err    error
	silent bool
}

// fakeHandler answers by details; unknown ones get an empty list.
type fakeHandler struct {
	discoveryv0.UnimplementedDiscoveryHandlerServer
	endpoint string
	answers  changing[map[string]answer]

	mu       sync.Mutex
	requests []*discoveryv0.DiscoverRequest
	open     int
}

func newHandler(t *testing.T) *fakeHandler {
	t.Helper()
	return &fakeHandler{endpoint: filepath.Join(t.TempDir(), "h.sock")}
}

func (h *fakeHandler) serve(t *testing.T) (stop func()) {
	t.Helper()
	return rpctest.ServeAt(t, "unix://"+h.endpoint, func(s grpc.ServiceRegistrar) { discoveryv0.RegisterDiscoveryHandlerServer(s, h) })
}

func (h *fakeHandler) says(details string, a answer) {
	h.answers.update(func(answers *map[string]answer) {
		next := map[string]answer{details: a}
		for other, said := range *answers {
			if other != details {
				next[other] = said
			}
		}
		*answers = next
	})
}

func (h *fakeHandler) asked() []*discoveryv0.DiscoverRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

func (h *fakeHandler) streams(change int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open += change
	return h.open
}

func (h *fakeHandler) Discover(request *discoveryv0.DiscoverRequest, stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
	h.mu.Lock()
	h.requests = append(h.requests, request)
	h.mu.Unlock()
	h.streams(1)
	defer h.streams(-1)
	for {
		answers, changed := h.answers.get()
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

// fakeWriter keeps all reports, and answers them while it is not held.
type fakeWriter struct {
	instancev1.UnimplementedInstanceServiceServer
	held     changing[bool]
	refusals []*instancev1.Refusal // of every report

	mu      sync.Mutex
	reports []*instancev1.ReportDevicesRequest
}

func (w *fakeWriter) register(s grpc.ServiceRegistrar) {
	instancev1.RegisterInstanceServiceServer(s, w)
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
		for held, changed := w.held.get(); held; held, changed = w.held.get() {
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

func (w *fakeWriter) of(configuration string) []*instancev1.ReportDevicesRequest {
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
