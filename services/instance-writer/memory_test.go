package instancewriter_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/auth"
)

type reportStream = grpc.BidiStreamingClient[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse]

// A replica with little memory accepts nodes until their reports fill it. It refuses further nodes
// and serves the others. It accepts nodes again when others have left.
func TestMemoryLimitsNodes(t *testing.T) {
	const maxNodes = 64
	f := newFixture(t, 1, maxNodes)
	r, _ := startSecuredProcess(t, 48<<20)
	var streams []reportStream
	report := func(node string) error {
		conn := r.dial(token(t, namespace, agent, node, audience))
		stream, err := instancev1.NewInstanceServiceClient(conn).ReportDevices(t.Context())
		require.NoError(t, err)
		device := f.device(node, "/dev/video0", false)
		device.Properties["LONG"] = strings.Repeat(node, 512<<10/len(node))
		if err := stream.Send(f.newReport(node, device)); !errors.Is(err, io.EOF) { // EOF: refused already
			require.NoError(t, err)
		}
		if _, err = stream.Recv(); err == nil {
			streams = append(streams, stream)
		} else {
			require.NoError(t, conn.Close())
		}
		return err
	}
	var err error
	for len(streams) < maxNodes && err == nil {
		err = report(f.nodes[len(streams)])
	}
	require.Equal(t, codes.ResourceExhausted, status.Code(err), err)
	require.Greater(t, len(streams), 5)
	require.Regexp(t, "of memory and accepts no more nodes; start more replicas or raise the limit|memory for reports is short", err.Error())
	require.Equal(t, string(auth.ReasonMemory), status.Convert(err).Details()[0].(*errdetails.ErrorInfo).GetReason())
	t.Logf("refused node %d: %v", len(streams), err)

	instance := f.device(f.nodes[0], "/dev/video0", false).GetInstance()
	_, err = r.client(token(t, namespace, agent, f.nodes[0], audience)).ReserveSlots(t.Context(), &instancev1.ReserveSlotsRequest{
		Node: f.nodes[0], Claims: []*instancev1.SlotClaim{claim(instance, 0)},
	})
	require.NoError(t, err, "reservations are not refused")

	refused := f.nodes[len(streams)]
	for _, stream := range streams {
		require.NoError(t, stream.CloseSend())
	}
	require.Eventually(t, func() bool { return report(refused) == nil }, timeout, pollInterval)
}

// A node has reports of nearly 8 MiB. Nodes with small reports connect until the memory of the
// replica is short. It then ends the stream of the heavy node, and those of the others stay open.
// All reports have less than 9 MiB, and a quarter of what Go may use is more, so that their limit
// does not end the stream.
func TestHeavyNodeMakesRoom(t *testing.T) {
	const limit, maxNodes, size = 44 << 20, 120, 8 << 10
	f := newFixture(t, 1, 1)
	targets := []*fixture{newFixture(t, 1, 0), newFixture(t, 1, 0), newFixture(t, 1, 0)}
	r, _ := startSecuredProcess(t, limit)

	heavy := make(chan error, 1)
	client := r.client(token(t, namespace, agent, f.nodes[0], audience))
	go func() { heavy <- reportLarge(t.Context(), client, f.nodes[0], targets, 2) }()
	f.eventually("all devices of the heavy node", func() bool {
		return !slices.ContainsFunc(targets, func(target *fixture) bool {
			return target.deleted(target.device(f.nodes[0], "2-2", false).GetInstance())
		})
	})

	send := func(stream reportStream, node string) error {
		device := f.device(node, "light", false)
		device.Properties["LONG"] = strings.Repeat("x", size)
		if err := stream.Send(f.newReport(node, device)); err != nil && !errors.Is(err, io.EOF) { // EOF: refused already
			return err
		}
		_, err := stream.Recv()
		return err
	}
	light := map[string]reportStream{}
	for i := 0; i < maxNodes && len(heavy) == 0; i++ {
		node := fmt.Sprintf("%s-light%d", f.configuration.Name, i)
		f.addNode(node)
		conn := r.dial(token(t, namespace, agent, node, audience), from(fmt.Sprintf("127.0.1.%d", i+1)))
		stream, err := instancev1.NewInstanceServiceClient(conn).ReportDevices(t.Context())
		require.NoError(t, err)
		if err := send(stream, node); err != nil {
			require.True(t, isFull(err), err) // the memory of the heavy node was not free yet
			break
		}
		light[node] = stream
	}

	select {
	case err := <-heavy:
		require.True(t, isFull(err), err)
		require.ErrorContains(t, err, "the reports of this node need the most")
	case <-time.After(timeout):
		t.Fatalf("the heavy node keeps its stream with %d others", len(light))
	}
	for node, stream := range light {
		require.NoError(t, send(stream, node), node)
	}
	t.Logf("with %d others", len(light))
}
