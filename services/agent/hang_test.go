package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"akri.sh/libs/rpc"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/agent"
)

// runnerFunc is a handler of the agent.
type runnerFunc func(context.Context) error

func (f runnerFunc) Run(ctx context.Context) error { return f(ctx) }

// The embedded handler accepts no connection and does not stop when its context ends.
func TestHangingHandlerIsOffline(t *testing.T) {
	h := newHarness(t, "debug-echo")
	h.config.DiscoveryOperator.ProbeInterval = 50 * time.Millisecond
	listener, err := rpc.Listen(t.Context(), zap.NewNop(), h.address("hanging.sock"))
	require.NoError(t, err)
	defer listener.Close()
	release := make(chan struct{})
	hang := func(_ struct{}, child service.Env) (service.Runner, error) {
		child.Health.AddLiveness("socket", func(context.Context) error { return errors.New("no response") })
		return runnerFunc(func(context.Context) error { <-release; return nil }), nil
	}
	own := env(t)
	s, err := agent.New(h.config, own)
	require.NoError(t, err)
	require.NoError(t, s.AddHandler("handler-hanging", hang, own))
	stop := background(s.Run)
	defer func() { close(release); require.NoError(t, stop()) }()

	registration := discoveryv0.NewRegistrationClient(rpctest.Dial(t, h.address("agent-registration.sock")))
	_, err = registration.RegisterDiscoveryHandler(t.Context(), &discoveryv0.RegisterDiscoveryHandlerRequest{
		Name: "hanging", Endpoint: h.path("hanging.sock"),
	}, grpc.WaitForReady(true))
	require.NoError(t, err)
	table := registrarv1.NewRegistrarServiceClient(rpctest.Dial(t, h.address("r")))
	statuses := func() map[string]registrarv1.HandlerStatus {
		response, err := table.ListHandlers(t.Context(), &registrarv1.ListHandlersRequest{}, grpc.WaitForReady(true))
		require.NoError(t, err)
		found := map[string]registrarv1.HandlerStatus{}
		for _, handler := range response.GetHandlers() {
			found[handler.GetName()] = handler.GetStatus()
		}
		return found
	}
	require.Eventually(t, func() bool {
		found := statuses()
		return found["hanging"] == registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE &&
			found["debugEcho"] == registrarv1.HandlerStatus_HANDLER_STATUS_WAITING
	}, timeout, tick)
	require.NoError(t, own.Health.Live(t.Context()), "the kubelet must not restart the process")
}
