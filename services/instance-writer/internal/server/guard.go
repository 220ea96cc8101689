package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	instancev1 "akri.sh/proto/akri/instance/v1"
)

// errCutOff sends streams to a replica that reaches the API server.
var errCutOff = status.Error(codes.Unavailable, "this replica is cut off from the API server")

// Guard is a Server that holds no node's stream while it is cut off from the API server: what it
// would say is old.
type Guard struct {
	*Server
	// Lost is closed while the API server does not answer.
	Lost func() <-chan struct{}
}

// within is a stream with a context of its own.
type within struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream has one
}

// Context implements grpc.ServerStream.
func (w within) Context() context.Context { return w.ctx }

// WatchInstances implements instancev1.InstanceServiceServer.
func (g Guard) WatchInstances(request *instancev1.WatchInstancesRequest, stream watchStream) error {
	return g.hold(stream, func(of grpc.ServerStream) error {
		return g.Server.WatchInstances(request, &grpc.GenericServerStream[instancev1.WatchInstancesRequest, instancev1.WatchInstancesResponse]{ServerStream: of})
	})
}

// ReportDevices implements instancev1.InstanceServiceServer.
func (g Guard) ReportDevices(stream reportStream) error {
	return g.hold(stream, func(of grpc.ServerStream) error {
		return g.Server.ReportDevices(&grpc.GenericServerStream[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse]{ServerStream: of})
	})
}

// hold serves the stream until it ends or the API server is lost. A Recv that is under way then
// ends with the call.
func (g Guard) hold(stream grpc.ServerStream, serve func(grpc.ServerStream) error) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- serve(within{stream, ctx}) }()
	select {
	case err := <-served:
		return err
	case <-g.Lost():
		return errCutOff
	}
}
