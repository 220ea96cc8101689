package instancewriter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/auth"
)

// One node sends reports up to its limits with new ids, over new connections, to a replica with
// little memory. Every report of ten other nodes, each on a new stream, is accepted and applied
// meanwhile.
func TestHostileNodeAmongOthers(t *testing.T) {
	const honestNodes, rounds = 10, 3
	f := newFixture(t, 1, 1+honestNodes)
	targets := []*fixture{newFixture(t, 1, 0), newFixture(t, 1, 0), newFixture(t, 1, 0)}
	r, peak := startSecuredProcess(t, 128<<20)
	var full, tooMany atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var hostile errgroup.Group
	hostileToken := token(t, namespace, agent, f.nodes[0], audience)
	hostile.Go(func() error {
		for attempt := 0; ctx.Err() == nil; attempt++ {
			conn := r.dial(hostileToken, from("127.0.0.2"))
			err := reportLarge(ctx, instancev1.NewInstanceServiceClient(conn), f.nodes[0], targets, attempt)
			switch {
			case isFull(err):
				full.Add(1)
			case errors.Is(err, errRefused):
				tooMany.Add(1)
			}
			_ = conn.Close()
		}
		return nil
	})

	var honest errgroup.Group
	for i, node := range f.nodes[1:] {
		conn := r.dial(token(t, namespace, agent, node, audience), from(fmt.Sprintf("127.0.1.%d", i+1)))
		honest.Go(func() error {
			for round := 0; round < rounds || full.Load()+tooMany.Load() == 0; round++ {
				stream, err := instancev1.NewInstanceServiceClient(conn).ReportDevices(t.Context())
				if err != nil {
					return err
				}
				device := f.device(node, fmt.Sprint(round), false)
				device.Properties["LONG"] = strings.Repeat(node, 250<<10/len(node))
				if err := stream.Send(f.newReport(node, device)); err != nil {
					_, err = stream.Recv()
					return fmt.Errorf("%s, round %d: %w", node, round, err)
				}
				response, err := stream.Recv()
				if err != nil || len(response.GetRefusals()) > 0 || f.deleted(device.GetInstance()) {
					return fmt.Errorf("%s, round %d: %v %w", node, round, response, err)
				}
				if err := stream.CloseSend(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, honest.Wait())
	stop()
	require.NoError(t, hostile.Wait())
	t.Logf("hostile node: %d streams ended because of memory, %d with refused devices; %d MiB at most", full.Load(), tooMany.Load(), peak()>>20)
}

// reportLarge reports new devices of as many bytes as the node may have. Some streams stay open
// until the replica ends them.
func reportLarge(ctx context.Context, client instancev1.InstanceServiceClient, node string, targets []*fixture, attempt int) error {
	stream, err := client.ReportDevices(ctx)
	if err != nil {
		return err
	}
	for _, target := range targets {
		var devices []*discoveryv1.Device
		for i := range 3 {
			device := target.device(node, fmt.Sprintf("%d-%d", attempt, i), false)
			device.Properties["LONG"] = strings.Repeat(string(rune('a'+attempt%26)), 900<<10)
			devices = append(devices, device)
		}
		report := target.newReport(node, devices...)
		report.Complete = attempt%2 == 0
		if err := stream.Send(report); err != nil {
			_, err = stream.Recv()
			return err
		}
	}
	for range targets {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(response.GetRefusals()) > 0 {
			return errRefused
		}
	}
	if attempt%4 != 2 {
		return nil
	}
	_, err = stream.Recv() // it ends when the replica needs the memory
	return err
}

var errRefused = errors.New("devices refused")

// isFull reports whether the replica refused or ended a stream because of its memory.
func isFull(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetReason() == string(auth.ReasonMemory) {
			return true
		}
	}
	return false
}
