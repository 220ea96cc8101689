package instancewriter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/instance-writer/internal/history"
)

const (
	modelNodes, modelInstances, modelReplicas = 50, 24, 3

	callWithin = 2 * time.Second
	killEvery  = 1500 * time.Millisecond
	quiet      = 5 * time.Second
	// latest is how long the network holds a call back.
	latest = 100 * time.Millisecond
)

// TestSlotsAreLinearizable lets many nodes take and give back slots through replicas that are
// killed and a network that drops, repeats and delays calls, and checks what they were told against
// a model. AKRI_MODEL_OPERATIONS sets how many calls there are. AKRI_MODEL_SEED replays what the
// nodes and the network of a run do, though not what its processes happen to do.
func TestSlotsAreLinearizable(t *testing.T) {
	seed := setting(t, "AKRI_MODEL_SEED", int(rand.Uint32()))
	operations := setting(t, "AKRI_MODEL_OPERATIONS", 5000)
	t.Logf("AKRI_MODEL_SEED=%d AKRI_MODEL_OPERATIONS=%d", seed, operations)
	m := newModel(t, seed)
	began := time.Now()
	m.run(operations)
	t.Logf("%d calls in %s: %v; %d kills", m.history.Len(), time.Since(began).Round(time.Second), m.outcomes, m.kills)
	m.lookAtAll()
	began = time.Now()
	require.NoError(t, m.history.Check(5*time.Minute, filepath.Join(os.TempDir(), fmt.Sprintf("akri-history-%d.html", seed))), "AKRI_MODEL_SEED=%d", seed)
	t.Logf("checked in %s", time.Since(began).Round(time.Millisecond))
	m.nothingIsLost()
}

func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return value
}

type model struct {
	*world
	seed      int
	replicas  []*process
	instances []string
	history   history.History

	mu       sync.Mutex
	outcomes map[string]int
	kills    int
}

func newModel(t *testing.T, seed int) *model {
	t.Helper()
	m := &model{world: newWorld(t, history.Capacity, modelNodes), seed: seed, replicas: processes(t, api.Config().Host, modelReplicas), outcomes: map[string]int{}}
	var devices []*instancev1.Device
	for i := range modelInstances {
		devices = append(devices, m.device("", fmt.Sprintf("d%d", i), true))
		m.instances = append(m.instances, devices[i].GetInstance())
	}
	var reporting sync.WaitGroup
	for i, node := range m.nodes {
		s := open(t, &replica{client: m.replicas[i%modelReplicas].client})
		reporting.Go(func() { s.tell(m.report(node, devices...)) })
	}
	reporting.Wait()
	return m
}

// run lets each node make its share of the calls.
func (m *model) run(operations int) {
	ctx, stop := context.WithCancel(m.Context())
	var killer, nodes sync.WaitGroup
	killer.Go(func() { m.killReplicas(ctx) })
	for client := range m.nodes {
		nodes.Go(func() { m.node(client, operations/modelNodes) })
	}
	nodes.Wait()
	stop()
	killer.Wait()
}

// killReplicas kills one after the other; at least two live at any time.
func (m *model) killReplicas(ctx context.Context) {
	random := rand.New(rand.NewPCG(uint64(m.seed), 0))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(killEvery/2 + rand.N(killEvery)):
		}
		victim := m.replicas[random.IntN(len(m.replicas))]
		victim.kill()
		victim.start()
		m.kills++
	}
}

// node makes calls one after the other, but for those that the network repeats or holds back. All
// nodes crowd round the same few Instances, which change as they go.
func (m *model) node(client, calls int) {
	random := rand.New(rand.NewPCG(uint64(m.seed), uint64(client+1)))
	var delayed sync.WaitGroup
	defer delayed.Wait()
	for made := 0; made < calls; made++ {
		call := m.draw(random, client, made)
		switch trouble, replica, wait := random.IntN(20), random.IntN(modelReplicas), time.Duration(random.Int64N(int64(latest))); trouble {
		case 0: // dropped before it arrived: no call
			made--
		case 1: // repeated, through another replica
			made++
			delayed.Go(func() { <-time.After(wait); m.call(client, (replica+1)%modelReplicas, call) })
			m.call(client, replica, call)
		case 2: // overtaken by the next one
			delayed.Go(func() { <-time.After(wait); m.call(client, replica, call) })
		default:
			m.call(client, replica, call)
		}
	}
}

func (m *model) draw(random *rand.Rand, client, made int) history.Call {
	crowd := made / 10 * 3
	call := history.Call{
		Instance: m.instances[(crowd+random.IntN(3))%len(m.instances)], Node: m.nodes[client], Release: random.IntN(5) < 3,
		Slots: []int{random.IntN(history.Capacity)},
	}
	if random.IntN(4) == 0 {
		call.Slots = append(call.Slots, (call.Slots[0]+1)%history.Capacity)
	}
	return call
}

func (m *model) call(client, replica int, call history.Call) {
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	began := time.Now()
	err := m.send(ctx, m.replicas[replica].client, call)
	outcome := history.Done
	switch status.Code(err) {
	case codes.OK:
	case codes.FailedPrecondition:
		outcome = history.Held
	default:
		outcome = history.Unknown
	}
	m.history.Record(client, call, began, outcome)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcomes[string(outcome)]++
}

func (m *model) send(ctx context.Context, client instancev1.InstanceServiceClient, call history.Call) (err error) {
	var claims []*instancev1.SlotClaim
	for _, index := range call.Slots {
		claims = append(claims, claim(call.Instance, uint32(index)))
	}
	if call.Release {
		_, err = client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: call.Node, Claims: claims}, grpc.WaitForReady(true))
	} else {
		_, err = client.ReserveSlots(ctx, &instancev1.ReserveSlotsRequest{Node: call.Node, Claims: claims}, grpc.WaitForReady(true))
	}
	return err
}

// lookAtAll adds what the API server holds to the history.
func (m *model) lookAtAll() {
	for _, name := range m.instances {
		began := time.Now()
		usage := m.get(name).Spec.DeviceUsage
		require.Len(m, usage, history.Capacity)
		for index := range history.Capacity {
			m.history.Look(name, index, usage[akriv0.SlotName(name, index)], began)
		}
	}
}

// nothingIsLost gives back what each node finds itself to hold, as its device-plugin-host does, and
// checks after a quiet time that every slot is free.
func (m *model) nothingIsLost() {
	for _, node := range m.nodes {
		ctx, cancel := context.WithTimeout(m.Context(), within)
		watch, err := m.replicas[0].client.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: node}, grpc.WaitForReady(true))
		require.NoError(m, err)
		first, err := watch.Recv()
		require.NoError(m, err)
		m.giveBack(ctx, node, first.GetSnapshot().GetInstances())
		cancel()
	}
	<-time.After(quiet) // what comes late would show
	for _, name := range m.instances {
		for slot, holder := range m.get(name).Spec.DeviceUsage {
			require.Empty(m, holder, slot)
		}
	}
}

func (m *model) giveBack(ctx context.Context, node string, instances []*instancev1.Instance) {
	var claims []*instancev1.SlotClaim
	for _, instance := range instances {
		for _, slot := range instance.GetSlots() {
			if slot.GetHolder().GetNode() == node {
				claims = append(claims, claim(instance.GetName(), slot.GetIndex()))
			}
		}
	}
	if len(claims) == 0 {
		return
	}
	_, err := m.replicas[1].client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: node, Claims: claims}, grpc.WaitForReady(true))
	require.NoError(m, err)
}
