package handler

import (
	"cmp"
	"context"
	"slices"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	discoveryv0 "akri.sh/proto/v0"
)

// Discover implements `v0.DiscoveryHandler`.
func (s *Server) Discover(request *discoveryv0.DiscoverRequest, stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
	s.presence.opened()
	defer s.presence.closed()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		select {
		case <-s.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	out := &outlet{stream: stream, metrics: s.metrics, log: s.log}
	if err := s.handler.Discover(ctx, s.toRequest(request), out.send); err != nil {
		s.log.Debug("discovery ended", zap.Error(err))
		return toStatus(err)
	}
	return status.Error(codes.Unavailable, "discovery ended: the handler is stopping")
}

func (s *Server) toRequest(request *discoveryv0.DiscoverRequest) Request {
	properties := make(map[string][]byte, len(request.GetDiscoveryProperties()))
	for name, value := range request.GetDiscoveryProperties() {
		properties[name] = value.GetVec()
	}
	return Request{Details: request.GetDiscoveryDetails(), Properties: properties, Log: s.log}
}

// outlet remembers the last list of one stream.
type outlet struct {
	stream  grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]
	metrics *metrics
	log     *zap.Logger
	sent    bool
	last    []*Device
	refused int
}

func (o *outlet) send(devices []*Device) error {
	list := slices.SortedStableFunc(slices.Values(o.sendable(devices)), func(a, b *Device) int { return cmp.Compare(a.GetId(), b.GetId()) })
	same := func(a, b *Device) bool { return proto.Equal(a, b) }
	if o.sent && slices.EqualFunc(o.last, list, same) {
		return nil
	}
	if err := o.stream.Send(&discoveryv0.DiscoverResponse{Devices: list}); err != nil {
		return err
	}
	o.sent, o.last = true, list
	o.metrics.lists.Inc()
	return nil
}

// sendable leaves out what would end the stream, and hide all others with it: a device that says what is not UTF-8.
func (o *outlet) sendable(devices []*Device) []*Device {
	list := slices.DeleteFunc(slices.Clone(devices), func(device *Device) bool {
		_, err := proto.Marshal(device)
		return err != nil
	})
	if refused := len(devices) - len(list); refused != o.refused {
		o.refused = refused
		o.log.Warn("devices that are not in UTF-8 are left out", zap.Int("devices", refused))
	}
	return list
}
