package auth

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/tap"
)

// maxCalls is the number of calls that a node can have in progress: those of two services, and of
// their predecessors while they restart.
const maxCalls = 16

// ServerOptions returns the interceptors of a server. Only its health service can be called without
// identity.
func (a *Authenticator) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(a.admit), grpc.ChainUnaryInterceptor(a.unary), grpc.ChainStreamInterceptor(a.stream),
	}
}

func anonymous(method string) bool {
	return strings.HasPrefix(method, "/"+healthv1.Health_ServiceDesc.ServiceName+"/")
}

// admit limits the calls before their messages are received, because gRPC receives the message of a
// unary call before it calls the interceptors. It counts a call with a known token for the node,
// and any other call for its address until the token is verified. It must not block. The
// interceptors check the token.
func (a *Authenticator) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	token, _ := strings.CutPrefix(strings.Join(info.Header.Get("authorization"), ""), "Bearer ")
	if caller, known := a.callers.Known(digest(token)); known {
		end, ok := a.admitted.Add(sender{node: caller.Node}, maxCalls)
		if !ok {
			return nil, a.report(ctx, caller, tooManyCalls(caller.Node))
		}
		context.AfterFunc(ctx, end)
		return ctx, nil
	}
	_, source := peerOf(ctx)
	limit := max(1, a.PerSource/unverifiedShare)
	end, ok := a.admitted.Add(sender{address: source}, limit)
	if !ok {
		err := refuse(ReasonCalls, "%s has %d calls in progress with tokens that are not verified yet", source, limit)
		return nil, a.report(ctx, Identity{}, err)
	}
	context.AfterFunc(ctx, end)
	return context.WithValue(ctx, verifiedKey{}, end), nil
}

type verifiedKey struct{}

// sender is a node, or an address whose token is not verified yet.
type sender struct{ node, address string }

func tooManyCalls(node string) *Refusal {
	return refuse(ReasonCalls, "node %q has %d calls in progress", node, maxCalls)
}

// checkMessage refuses a message that names another node than the caller's, and delays messages
// that are too frequent.
func (a *Authenticator) checkMessage(ctx context.Context, message any) error {
	identity := ctx.Value(identityKey{}).(Identity)
	if err := a.awaitMessage(ctx, identity.Node, message); err != nil {
		return a.report(ctx, identity, err)
	}
	named, ok := message.(interface{ GetNode() string })
	if !ok || named.GetNode() != identity.Node {
		node := ""
		if ok {
			node = named.GetNode()
		}
		return a.report(ctx, identity, refuse(ReasonOtherNode, "node %q may not call for node %q", identity.Node, node))
	}
	return nil
}

func (a *Authenticator) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if anonymous(info.FullMethod) {
		return handler(ctx, request)
	}
	ctx, err := a.authenticate(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if err := a.checkMessage(ctx, request); err != nil {
		return nil, err
	}
	opened, ctx, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	defer a.close(opened)
	return handler(ctx, request)
}

// stream is one interceptor, because a stream waits inside of it: the stack of each further
// interceptor takes memory for each stream of a node.
func (a *Authenticator) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if anonymous(info.FullMethod) {
		return handler(server, stream)
	}
	opened, ctx, err := a.openStream(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer a.close(opened)
	return handler(server, &checkedStream{stream, ctx, a})
}

func (a *Authenticator) openStream(ctx context.Context, method string) (*call, context.Context, error) {
	ctx, err := a.authenticate(ctx, method)
	if err != nil {
		return nil, nil, err
	}
	identity := ctx.Value(identityKey{}).(Identity)
	if err := a.Memory(identity.Node); err != nil {
		return nil, nil, a.report(ctx, identity, refuse(ReasonMemory, "%v", err))
	}
	return a.open(ctx)
}

// call is a call of a node in progress.
type call struct {
	node string
	end  context.CancelCauseFunc
}

// open counts a call of a node. The context ends when the Node is deleted.
func (a *Authenticator) open(ctx context.Context) (*call, context.Context, error) {
	identity := ctx.Value(identityKey{}).(Identity)
	ctx, end := context.WithCancelCause(ctx)
	opened := &call{identity.Node, end}
	if !a.add(opened) {
		end(nil)
		return nil, nil, a.report(ctx, identity, tooManyCalls(identity.Node))
	}
	// The Node may have been deleted before the call was added, so that NodeDeleted did not end it.
	if exists, err := a.NodeExists(ctx, identity.Node); err == nil && !exists {
		a.close(opened)
		return nil, nil, a.report(ctx, identity, refuse(ReasonUnknownNode, "there is no Node %q", identity.Node))
	}
	return opened, ctx, nil
}

// add returns false if the node has too many calls.
func (a *Authenticator) add(opened *call) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.calls[opened.node]) >= maxCalls {
		return false
	}
	if a.calls[opened.node] == nil {
		a.calls[opened.node] = map[*call]struct{}{}
	}
	a.calls[opened.node][opened] = struct{}{}
	return true
}

func (a *Authenticator) close(closed *call) {
	closed.end(nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.calls[closed.node], closed)
	if len(a.calls[closed.node]) == 0 {
		delete(a.calls, closed.node)
	}
}

func (a *Authenticator) endCalls(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for open := range a.calls[node] {
		open.end(toStatus(refuse(ReasonUnknownNode, "Node %q was deleted", node)))
	}
}

// checkedStream checks the node of each message.
type checkedStream struct {
	grpc.ServerStream

	ctx           context.Context //nolint:containedctx // as grpc.ServerStream
	authenticator *Authenticator
}

// Context implements grpc.ServerStream.
func (s *checkedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *checkedStream) RecvMsg(message any) error {
	if err := s.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	return s.authenticator.checkMessage(s.ctx, message)
}
