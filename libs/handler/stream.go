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
	s.state.addStreams(1)
	defer s.state.addStreams(-1)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		select {
		case <-s.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	out := &sender{stream: stream, metrics: s.metrics, log: s.log}
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

// sender sends the lists of one stream and keeps the last one.
type sender struct {
	stream  grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]
	metrics *metrics
	log     *zap.Logger
	sent    bool
	last    []*Device
	invalid int // number of invalid devices in the last list
}

func (s *sender) send(devices []*Device) error {
	list := slices.SortedStableFunc(slices.Values(s.valid(devices)), func(a, b *Device) int { return cmp.Compare(a.GetId(), b.GetId()) })
	same := func(a, b *Device) bool { return proto.Equal(a, b) }
	if s.sent && slices.EqualFunc(s.last, list, same) {
		return nil
	}
	if err := s.stream.Send(&discoveryv0.DiscoverResponse{Devices: list}); err != nil {
		return err
	}
	s.sent, s.last = true, list
	s.metrics.lists.Inc()
	return nil
}

// valid returns the devices without those that protobuf cannot encode because a string is not
// UTF-8: one of them would end the stream and so hide all other devices.
func (s *sender) valid(devices []*Device) []*Device {
	list := slices.DeleteFunc(slices.Clone(devices), func(device *Device) bool {
		_, err := proto.Marshal(device)
		return err != nil
	})
	if invalid := len(devices) - len(list); invalid != s.invalid {
		s.invalid = invalid
		s.log.Warn("ignoring devices with strings that are not UTF-8", zap.Int("devices", invalid))
	}
	return list
}
