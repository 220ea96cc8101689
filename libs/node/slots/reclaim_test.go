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

	"akri.sh/libs/node"
	"akri.sh/libs/node/instancetest"
	"akri.sh/libs/node/slots"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

var (
	first  = node.SlotClaim{Namespace: "default", Configuration: "akri-onvif", Instance: "akri-onvif-8120fe"}
	second = node.SlotClaim{Namespace: "default", Configuration: "akri-onvif", Instance: "akri-onvif-8120fe", Index: 1}
)

// fakeWriter is an instance-writer with one Instance with two slots. It answers reservations after
// the watch has shown them.
type fakeWriter struct {
	instancev1.InstanceServiceClient
	store *node.Store
}

// newFakeWriter returns a fakeWriter. node-a holds the given slots.
func newFakeWriter(held ...node.SlotClaim) *fakeWriter {
	var usage [2]string
	for _, claim := range held {
		usage[claim.Index] = "node-a"
	}
	writer, store := instancetest.New(), node.NewStore("node-a")
	writer.OnChange = store.SetInstances
	writer.Put(first.Instance, first.Configuration, 2, usage[:]...)
	return &fakeWriter{writer.Client(), store}
}

func (w *fakeWriter) ReserveSlots(
	ctx context.Context, request *instancev1.ReserveSlotsRequest, options ...grpc.CallOption,
) (*instancev1.ReserveSlotsResponse, error) {
	response, err := w.InstanceServiceClient.ReserveSlots(ctx, request, options...)
	<-time.After(5 * time.Millisecond)
	return response, err
}

func (w *fakeWriter) holds(claim node.SlotClaim) bool {
	snapshot, _ := w.store.Get()
	return snapshot.SlotState(claim) == node.SlotHeld
}

// fakeCheckpoint is the checkpoint file of the kubelet.
type fakeCheckpoint struct {
	mu       sync.Mutex
	devices  slots.Devices
	err      error
	rewrites int
}

func (c *fakeCheckpoint) set(devices slots.Devices, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.devices, c.err = devices, err
}

func (c *fakeCheckpoint) read() (slots.Devices, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.devices, c.err
}

func (c *fakeCheckpoint) rewrite(context.Context, string) {
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
		writer := newFakeWriter(first)
		allocated := slots.Devices{"akri.sh/akri-onvif-8120fe": sets.New("akri-onvif-8120fe-0")}
		checkpoint := &fakeCheckpoint{devices: allocated}
		reclaimer := slots.NewReclaimer(slots.ReclaimerConfig{
			Manager: slots.NewManager(writer, writer.store),
			Log:     zap.NewNop(), OnResult: func(slots.Result) {},
			PodDevices:        func(context.Context) (slots.Devices, error) { return slots.Devices{}, nil },
			CheckpointDevices: checkpoint.read,
			RewriteCheckpoint: checkpoint.rewrite,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- reclaimer.Run(ctx) }()
		after := func(duration time.Duration) { <-time.After(duration); synctest.Wait() }

		after(19500 * time.Millisecond)
		require.True(t, writer.holds(first))
		require.Zero(t, checkpoint.rewritten(), "the checkpoint is not needed yet")
		after(12 * time.Second)
		require.True(t, writer.holds(first), "the checkpoint lists the device")
		require.Equal(t, 3, checkpoint.rewritten(), "once in 5 s")
		checkpoint.set(nil, errors.New("no such file"))
		after(10 * time.Second)
		require.True(t, writer.holds(first), "the checkpoint cannot be read")
		require.Equal(t, 5, checkpoint.rewritten())
		checkpoint.set(slots.Devices{}, nil)
		after(time.Second)
		require.False(t, writer.holds(first))
		require.Equal(t, 5, checkpoint.rewritten())

		cancel()
		require.NoError(t, <-done)
	})
}

// A Pod whose next resource is refused does not run. Its slot is released with the next list unless
// the checkpoint file lists it, and is not taken back.
func TestReclaimSlotOfRejectedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writer := newFakeWriter()
		checkpoint := &fakeCheckpoint{devices: slots.Devices{first.Resource(): sets.New(first.DeviceID())}}
		manager := slots.NewManager(writer, writer.store)
		var released slots.Result
		reclaimer := slots.NewReclaimer(slots.ReclaimerConfig{
			Manager: manager, Log: zap.NewNop(),
			OnResult:          func(result slots.Result) { released.Unconfirmed += result.Unconfirmed },
			PodDevices:        func(context.Context) (slots.Devices, error) { return slots.Devices{}, nil },
			CheckpointDevices: checkpoint.read, RewriteCheckpoint: checkpoint.rewrite,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- reclaimer.Run(ctx) }()
		after := func(duration time.Duration) { <-time.After(duration); synctest.Wait() }

		require.NoError(t, manager.Reserve(ctx, []node.SlotClaim{first}))
		require.NoError(t, manager.Reserve(ctx, []node.SlotClaim{second}))
		after(2 * time.Second)
		require.True(t, writer.holds(second), "the kubelet may list the Pod later")
		manager.AllocationRefused()
		after(2 * time.Second)
		require.False(t, writer.holds(second))
		require.True(t, writer.holds(first), "the checkpoint lists the device")
		require.Equal(t, 1, checkpoint.rewritten())
		checkpoint.set(slots.Devices{}, nil)
		after(30 * time.Second)
		require.False(t, writer.holds(first))
		require.False(t, writer.holds(second))

		cancel()
		require.NoError(t, <-done)
		require.Equal(t, slots.Result{Unconfirmed: 2}, released)
	})
}

// fakePods are the Pods of a kubelet. Each has one device of the Instance.
type fakePods struct {
	mu   sync.Mutex
	pods map[string]bool // by device
}

func (p *fakePods) set(claim node.SlotClaim, exists bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[claim.DeviceID()] = exists
}

func (p *fakePods) list(context.Context) (slots.Devices, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := sets.New[string]()
	for id, exists := range p.pods {
		if exists {
			ids.Insert(id)
		}
	}
	return slots.Devices{first.Resource(): ids}, nil
}

// A Pod that lives less than a second is in a list of the kubelet, whenever it starts. Its slot
// would otherwise be released only when the checkpoint file decides, after 20 s.
func TestReclaimSlotOfShortPod(t *testing.T) {
	for name, c := range map[string]struct {
		others []node.SlotClaim // held and in use
		start  time.Duration
	}{
		"the node holds no slot":       {nil, 1100 * time.Millisecond},
		"long before the next list":    {[]node.SlotClaim{first}, 1100 * time.Millisecond},
		"shortly before the next list": {[]node.SlotClaim{first}, 1900 * time.Millisecond},
		"during a list of the kubelet": {[]node.SlotClaim{first}, 1998 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				writer := newFakeWriter(c.others...)
				pods := &fakePods{pods: map[string]bool{}}
				for _, claim := range c.others {
					pods.set(claim, true)
				}
				var released slots.Result
				manager := slots.NewManager(writer, writer.store)
				reclaimer := slots.NewReclaimer(slots.ReclaimerConfig{
					Manager: manager, Log: zap.NewNop(),
					OnResult: func(result slots.Result) {
						released.Idle += result.Idle
						released.Unconfirmed += result.Unconfirmed
					},
					PodDevices: pods.list, RewriteCheckpoint: func(context.Context, string) {},
					CheckpointDevices: func() (slots.Devices, error) { return slots.Devices{}, nil },
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- reclaimer.Run(ctx) }()
				after := func(duration time.Duration) { <-time.After(duration); synctest.Wait() }

				after(c.start)
				require.NoError(t, manager.Reserve(ctx, []node.SlotClaim{second}))
				after(5 * time.Millisecond)
				pods.set(second, true)
				after(500 * time.Millisecond)
				require.True(t, writer.holds(second))
				pods.set(second, false)
				after(2 * time.Second)
				require.False(t, writer.holds(second))
				for _, claim := range c.others {
					require.True(t, writer.holds(claim))
				}

				cancel()
				require.NoError(t, <-done)
				require.Equal(t, slots.Result{Idle: 1}, released)
			})
		})
	}
}
