package discovery_test

import (
	"context"
	"io"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/discovery"
)

// fakeStream sends numbered lists without a pause, up to the limit or until ctx ends.
type fakeStream struct {
	grpc.ClientStream
	ctx   context.Context
	limit int // 0: none
	sent  int
}

func (s *fakeStream) Recv() (*discoveryv0.DiscoverResponse, error) {
	switch {
	case s.ctx.Err() != nil:
		return nil, s.ctx.Err()
	case s.limit > 0 && s.sent == s.limit:
		return nil, io.EOF
	}
	s.sent++
	return &discoveryv0.DiscoverResponse{Devices: []*discoveryv0.Device{{Id: strconv.Itoa(s.sent)}}}, nil
}

// Of a handler that sends lists continuously, 50 lists and then 10 a second are used, and 1000
// lists and then 500 a second are read.
func TestRatesOfLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		stream, used := &fakeStream{ctx: ctx}, 0
		require.ErrorIs(t, discovery.UseLists(ctx, stream, func([]*discoveryv0.Device) { used++ }), context.Canceled)
		require.InDelta(t, 50+10*60, used, 2)
		require.InDelta(t, 1000+500*60, stream.sent, 2)
	})
}

func TestLastListIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, last := &fakeStream{ctx: t.Context(), limit: 5000}, ""
		err := discovery.UseLists(t.Context(), stream, func(list []*discoveryv0.Device) { last = list[0].GetId() })
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, "5000", last)
	})
}
