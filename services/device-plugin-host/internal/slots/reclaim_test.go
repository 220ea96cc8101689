package slots_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/sets"

	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/device-plugin-host/internal/kubelet"
	"akri.sh/services/device-plugin-host/internal/node"
	"akri.sh/services/device-plugin-host/internal/slots"
)

// fakeWriter is an instance-writer with one Instance, whose only slot node-a holds until it is
// released.
type fakeWriter struct {
	instancev1.InstanceServiceClient
	store *node.Store
}

func instanceWith(slot *instancev1.Slot, revision uint64) *instancev1.Instance {
	return &instancev1.Instance{
		Namespace: "default", Name: "akri-onvif-8120fe", Configuration: "akri-onvif", Capacity: 1, Revision: revision,
		Slots: []*instancev1.Slot{slot},
	}
}

func newFakeWriter() *fakeWriter {
	w := &fakeWriter{store: node.NewStore("node-a")}
	holder := &instancev1.Slot_Holder{Holder: &instancev1.Holder{Node: "node-a"}}
	w.store.SetInstances([]*instancev1.Instance{instanceWith(&instancev1.Slot{State: holder}, 1)}, 1)
	return w
}

func (w *fakeWriter) ReleaseSlots(
	context.Context, *instancev1.ReleaseSlotsRequest, ...grpc.CallOption,
) (*instancev1.ReleaseSlotsResponse, error) {
	free := instanceWith(&instancev1.Slot{State: &instancev1.Slot_Free{Free: &instancev1.Free{}}}, 2)
	return &instancev1.ReleaseSlotsResponse{Instances: []*instancev1.Instance{free}}, nil
}

func (w *fakeWriter) held() bool {
	snapshot, _ := w.store.Get()
	return len(snapshot.HeldSlots()) > 0
}

// fakeCheckpoint is the checkpoint file of the kubelet.
type fakeCheckpoint struct {
	mu       sync.Mutex
	devices  kubelet.Devices
	err      error
	rewrites int
}

func (c *fakeCheckpoint) set(devices kubelet.Devices, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.devices, c.err = devices, err
}

func (c *fakeCheckpoint) read() (kubelet.Devices, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.devices, c.err
}

func (c *fakeCheckpoint) rewrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rewrites++
}

func (c *fakeCheckpoint) rewritten() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rewrites
}

// The pod-resources API does not list the devices of init containers, and the checkpoint file lists
// devices of Pods that have ended until the kubelet writes it again.
func TestReclaimUnconfirmedSlotByCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writer := newFakeWriter()
		allocated := kubelet.Devices{"akri.sh/akri-onvif-8120fe": sets.New("akri-onvif-8120fe-0")}
		checkpoint := &fakeCheckpoint{devices: allocated}
		reclaimer := slots.NewReclaimer(slots.ReclaimerConfig{
			Manager: slots.NewManager(writer, writer.store, "node-a", zap.NewNop()),
			Store:   writer.store, Log: zap.NewNop(), OnResult: func(slots.Result) {},
			PodDevices:        func(context.Context) (kubelet.Devices, error) { return kubelet.Devices{}, nil },
			CheckpointDevices: checkpoint.read,
			RewriteCheckpoint: checkpoint.rewrite,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- reclaimer.Run(ctx) }()
		after := func(duration time.Duration) { <-time.After(duration); synctest.Wait() }

		after(19500 * time.Millisecond)
		require.True(t, writer.held())
		require.Zero(t, checkpoint.rewritten(), "the checkpoint is not needed yet")
		after(12 * time.Second)
		require.True(t, writer.held(), "the checkpoint lists the device")
		require.Equal(t, 3, checkpoint.rewritten(), "once in 5 s")
		checkpoint.set(nil, errors.New("no such file"))
		after(10 * time.Second)
		require.True(t, writer.held(), "the checkpoint cannot be read")
		require.Equal(t, 5, checkpoint.rewritten())
		checkpoint.set(kubelet.Devices{}, nil)
		after(time.Second)
		require.False(t, writer.held())
		require.Equal(t, 5, checkpoint.rewritten())

		cancel()
		require.NoError(t, <-done)
	})
}
