package discovery

import (
	"context"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	discoveryv0 "akri.sh/proto/v0"
)

// A handler may send lists at any rate. Each used list may cause writes to the API server, so
// only the newest is used after a burst. Beyond the rate of reading, flow control makes the
// handler wait.
const (
	useBurst, useRate   = 50, 10 // lists, lists per second
	readBurst, readRate = 1000, 500
)

type discoverStream = grpc.ServerStreamingClient[discoveryv0.DiscoverResponse]

// useLists calls use with the lists of a stream, at most at the rate of use and always with the
// newest list. It returns the reason when the stream ends.
func useLists(ctx context.Context, stream discoverStream, use func([]*discoveryv0.Device)) error {
	lists, ended := receive(ctx, stream)
	limiter := rate.NewLimiter(useRate, useBurst)
	for list := range lists {
		use(list)
		if err := limiter.Wait(ctx); err != nil {
			break
		}
	}
	return <-ended
}

// receive reads the stream in the background until it ends. lists holds the newest list and is
// closed at the end of the stream; ended then holds the reason.
func receive(ctx context.Context, stream discoverStream) (lists <-chan []*discoveryv0.Device, ended <-chan error) {
	newest, end := make(chan []*discoveryv0.Device, 1), make(chan error, 1)
	limiter := rate.NewLimiter(readRate, readBurst)
	go func() {
		defer close(newest)
		for {
			response, err := stream.Recv()
			if err != nil {
				end <- err
				return
			}
			select {
			case <-newest:
			default:
			}
			newest <- response.GetDevices()
			_ = limiter.Wait(ctx) // Recv returns the error of ctx
		}
	}()
	return newest, end
}
