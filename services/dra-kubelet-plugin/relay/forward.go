package relay

import (
	"context"
	"errors"
	"io"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"akri.sh/libs/rpc"
)

const (
	// firstDelay and maxDelay bound the time after which a call that was lost is sent again.
	firstDelay = 20 * time.Millisecond
	maxDelay   = 500 * time.Millisecond
)

// errUnprepared is the result of a preparation whose claim was unprepared before it has ended.
var errUnprepared = status.Error(codes.Aborted, "the claim was unprepared meanwhile")

// call is a call of the kubelet. All APIs of the kubelet have one request, so that a call can be
// sent again.
type call struct {
	method  string
	request message
	kubelet grpc.ServerStream
	// answered is whether the kubelet got a message.
	answered bool
}

// forward is the handler of all methods. It waits while the plugin does not run, and sends a call
// again that was in progress when the plugin has ended: preparations are idempotent.
func (r *Relay) forward(_ any, kubelet grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(kubelet)
	c := &call{method: method, kubelet: kubelet}
	if err := kubelet.RecvMsg(&c.request); err != nil {
		return err
	}
	sent, _ := metadata.FromIncomingContext(kubelet.Context())
	ctx := metadata.NewOutgoingContext(kubelet.Context(), sent)

	switch method {
	case drav1.DRAPlugin_NodePrepareResources_FullMethodName:
		return r.preparations.run(ctx, c.claims(), func(ctx context.Context) error { return r.send(ctx, c) })
	case drav1.DRAPlugin_NodeUnprepareResources_FullMethodName:
		r.preparations.end(c.claims())
	case registrationv1.Registration_NotifyRegistrationStatus_FullMethodName:
		return r.registration(c, r.send(ctx, c))
	}
	return r.send(ctx, c)
}

// registration records the result of a registration, and returns the error of the call. The kubelet
// repeats the registration if the call has failed.
func (r *Relay) registration(c *call, err error) error {
	var result registrationv1.RegistrationStatus
	if c.request.decode(&result); err != nil {
		return err
	}
	r.registered.Store(result.GetPluginRegistered())
	if !result.GetPluginRegistered() {
		r.env.Log.Error("the kubelet refused the registration", zap.String("reason", result.GetError()))
		return nil
	}
	r.env.Log.Info("registered with the kubelet", zap.String("socket", r.socket()))
	return r.recordRegistration()
}

// send sends the call until the plugin has answered or ctx ends. It never sends a call again of
// which the kubelet got a message. A stream that is lost later ends without an error, and the
// kubelet opens it again. The only message of a call that is no stream is complete without the
// status that follows it.
func (r *Relay) send(ctx context.Context, c *call) error {
	delays := rpc.NewBackOff(firstDelay, maxDelay)
	for {
		err := r.untilClosed(ctx, func(ctx context.Context) error { return r.attempt(ctx, c) })
		if status.Code(err) != codes.Unavailable {
			return err
		}
		if c.answered {
			return nil
		}
		r.env.Log.Info("a call of the kubelet was lost, sending it again", zap.String("method", c.method), zap.Error(err))
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-time.After(delays.NextBackOff()):
		}
	}
}

// attempt sends the call once, and returns the code Unavailable if the connection was lost.
func (r *Relay) attempt(ctx context.Context, c *call) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.plugin.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, c.method, grpc.WaitForReady(true))
	if err != nil {
		return err
	}

	// The error of a request that cannot be sent is that of RecvMsg.
	if err := stream.SendMsg(&c.request); err == nil {
		_ = stream.CloseSend()
	}

	for {
		var response message
		if err := stream.RecvMsg(&response); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := c.kubelet.SendMsg(&response); err != nil {
			return err
		}
		c.answered = true
	}
}
