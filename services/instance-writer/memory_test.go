package instancewriter_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/auth"
)

// A replica with little memory accepts nodes until their reports fill it. It refuses further nodes
// and serves the others. It accepts nodes again when others have left.
func TestMemoryLimitsNodes(t *testing.T) {
	const maxNodes = 64
	f := newFixture(t, 1, maxNodes)
	r, _ := startSecuredProcess(t, 48<<20)
	var streams []grpc.BidiStreamingClient[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse]
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
