package allocator_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/admin"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	allocationv1 "akri.sh/proto/akri/allocation/v1"
	allocator "akri.sh/services/config-plugin-allocator"
)

// start runs the service until the test ends. It returns a client and the health checks of the
// process.
func start(t *testing.T) (allocationv1.ConfigurationAllocatorServiceClient, *admin.Health) {
	t.Helper()
	health := &admin.Health{}
	address := "unix://" + filepath.Join(t.TempDir(), "a.sock")
	s, err := allocator.New(allocator.Config{Socket: address},
		service.Env{Log: zaptest.NewLogger(t), Metrics: prometheus.NewRegistry(), Health: health})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	return allocationv1.NewConfigurationAllocatorServiceClient(rpctest.Dial(t, address)), health
}

func TestCalls(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("calls", func(t *testing.T) {
		client, health := start(t)
		state := &allocationv1.State{Node: "node-a", Instances: []*allocationv1.Instance{
			{Name: "akri-onvif-8120fe", Capacity: 2, FreeSlots: []uint32{0, 1}},
			{Name: "akri-onvif-a19705", Capacity: 2, FreeSlots: []uint32{0}, ClaimedSlots: []*allocationv1.ClaimedSlot{{Index: 1, VirtualId: "3"}}},
		}}
		listed, err := client.ListVirtualDevices(t.Context(), &allocationv1.ListVirtualDevicesRequest{State: state}, grpc.WaitForReady(true))
		require.NoError(t, err)
		require.Equal(t, []string{"0", "1", "3"}, listed.GetVirtualIds())
		require.NoError(t, health.Live(t.Context()))
		require.NoError(t, health.Ready(t.Context()))

		allocated, err := client.Allocate(t.Context(), &allocationv1.AllocateRequest{State: state,
			Containers: []*allocationv1.ContainerRequest{{VirtualIds: []string{"0", "3"}}}})
		require.NoError(t, err)
		require.Len(t, allocated.GetContainers(), 1)
		require.Len(t, allocated.GetContainers()[0].GetAllocations(), 2)
		reserved, held := allocated.GetContainers()[0].GetAllocations()[0], allocated.GetContainers()[0].GetAllocations()[1]
		require.Equal(t, []any{"0", "akri-onvif-8120fe", uint32(0), true}, []any{reserved.GetVirtualId(), reserved.GetInstance(), reserved.GetIndex(), reserved.GetReserve()})
		require.Equal(t, []any{"3", "akri-onvif-a19705", uint32(1), false}, []any{held.GetVirtualId(), held.GetInstance(), held.GetIndex(), held.GetReserve()})

		preferred, err := client.PreferVirtualDevices(t.Context(), &allocationv1.PreferVirtualDevicesRequest{State: state,
			Available: []string{"0", "1", "3"}, MustInclude: []string{"3"}, Size: 2})
		require.NoError(t, err)
		require.Equal(t, []string{"3", "0"}, preferred.GetVirtualIds())
	})
}

func TestRefusals(t *testing.T) {
	client, _ := start(t)
	for _, c := range []struct {
		ids     []string
		code    codes.Code
		message string
	}{
		{[]string{"0"}, codes.ResourceExhausted, "not enough distinct devices on this node: 1 requested by a container, 0 available"},
		{[]string{"x"}, codes.InvalidArgument, `virtual device "x" does not exist: its id must be claimed or a number`},
	} {
		_, err := client.Allocate(t.Context(), &allocationv1.AllocateRequest{Containers: []*allocationv1.ContainerRequest{{VirtualIds: c.ids}}}, grpc.WaitForReady(true))
		require.Equal(t, c.code, status.Code(err))
		require.Equal(t, c.message, status.Convert(err).Message())
	}
}
