package discovery

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/rpc"
	"akri.sh/libs/trial"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
)

// maxTrialBytes limits a list, because a trial shares the memory limit of the service. A report has
// the same limit.
const maxTrialBytes = 4 << 20

// Try returns the first list of a handler's endpoint, and closes the stream. Otherwise it returns
// why there is no list until ctx ends.
func Try(ctx context.Context, target Target, request *discoveryv0.DiscoverRequest) ([]*discoveryv0.Device, *instancev1.Problem) {
	conn, err := rpc.Dial(target.address(), prometheus.NewRegistry(), append(target.options(), rpc.WithoutKeepalive())...)
	if err != nil {
		return nil, newProblem(akriv0.ReasonHandlerOffline, err.Error())
	}
	defer conn.Close()
	list, err := firstList(ctx, conn, request)
	if err == nil {
		return list, nil
	}
	handler := target.Handler
	switch code := status.Code(err); {
	case code == codes.InvalidArgument:
		return nil, problemOf(err, handler)
	case ctx.Err() != nil && conn.GetState() == connectivity.Ready:
		return nil, newProblem(trial.NoList, fmt.Sprintf("%s has sent no list: it has found no device so far, or needs more time", name(handler)))
	case code == codes.Unavailable, ctx.Err() != nil:
		return nil, newProblem(akriv0.ReasonHandlerOffline, fmt.Sprintf("%s cannot be reached: %s", name(handler), status.Convert(err).Message()))
	default:
		return nil, newProblem(akriv0.ReasonDiscoverFailed, fmt.Sprintf("discovery with %s failed: %v", name(handler), err))
	}
}

// firstList does not send the deadline of ctx to the handler, which would return an error of its
// own.
func firstList(ctx context.Context, conn *grpc.ClientConn, request *discoveryv0.DiscoverRequest) ([]*discoveryv0.Device, error) {
	open, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel() // ends the stream
	defer context.AfterFunc(ctx, cancel)()
	stream, err := discoveryv0.NewDiscoveryHandlerClient(conn).Discover(open, request, grpc.MaxCallRecvMsgSize(maxTrialBytes))
	if err != nil {
		return nil, err
	}
	response, err := stream.Recv()
	return response.GetDevices(), err
}

func name(handler *registrarv1.Handler) string {
	return fmt.Sprintf("Discovery Handler %q at %s", handler.GetName(), handler.GetEndpoint())
}
