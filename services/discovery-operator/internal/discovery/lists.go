package discovery

import (
	"context"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	discoveryv0 "akri.sh/proto/v0"
)

// A handler may send as often as it likes; what that costs others is bounded. Few lists are taken at once and then some in a
// second, always the newest: each may end in writes to the API. Even reading has an end, behind which the handler waits.
const (
	takeBurst, takeRate = 50, 10
	readBurst, readRate = 1000, 500
)

type stream = grpc.ServerStreamingClient[discoveryv0.DiscoverResponse]

// receive reads the stream until it ends and says then why. A list that was not taken when the next one comes is dropped.
func receive(ctx context.Context, from stream) (lists <-chan []*discoveryv0.Device, ended <-chan error) {
	newest, end := make(chan []*discoveryv0.Device, 1), make(chan error, 1)
	pace := rate.NewLimiter(readRate, readBurst)
	go func() {
		defer close(newest)
		for {
			response, err := from.Recv()
			if err != nil {
				end <- err
				return
			}
			select {
			case <-newest:
			default:
			}
			newest <- response.GetDevices()
			_ = pace.Wait(ctx) // ends with the stream, which Recv tells
		}
	}()
	return newest, end
}
