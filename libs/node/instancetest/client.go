package instancetest

import (
	"context"

	"google.golang.org/grpc"

	instancev1 "akri.sh/proto/akri/instance/v1"
)

// client calls a Writer without a connection.
type client struct {
	instancev1.InstanceServiceClient
	writer *Writer
}

// Client returns a client for reservations, releases and ResourceClaims that needs no connection,
// for tests in a bubble of testing/synctest.
func (w *Writer) Client() instancev1.InstanceServiceClient { return client{writer: w} }

// ReserveSlots implements instancev1.InstanceServiceClient.
func (c client) ReserveSlots(
	ctx context.Context, request *instancev1.ReserveSlotsRequest, _ ...grpc.CallOption,
) (*instancev1.ReserveSlotsResponse, error) {
	return c.writer.ReserveSlots(ctx, request)
}

// ReleaseSlots implements instancev1.InstanceServiceClient.
func (c client) ReleaseSlots(
	ctx context.Context, request *instancev1.ReleaseSlotsRequest, _ ...grpc.CallOption,
) (*instancev1.ReleaseSlotsResponse, error) {
	return c.writer.ReleaseSlots(ctx, request)
}
