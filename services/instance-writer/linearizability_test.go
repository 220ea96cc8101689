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
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

const (
	modelNodes, modelInstances, modelReplicas = 50, 24, 3

	modelCallTimeout = 2 * time.Second
	killInterval     = 1500 * time.Millisecond
	// maxNetworkDelay is how long the simulated network delays a call.
	maxNetworkDelay = 100 * time.Millisecond
)

// TestSlotsAreLinearizable makes many nodes reserve and release slots through replicas that are
// killed and a network that drops, repeats and delays calls, and checks the outcomes against a
// model. AKRI_MODEL_OPERATIONS sets the number of calls. AKRI_MODEL_SEED repeats the calls and
// network faults of a run, but not the timing of its processes.
func TestSlotsAreLinearizable(t *testing.T) {
	seed := setting(t, "AKRI_MODEL_SEED", int(rand.Uint32()))
	operations := setting(t, "AKRI_MODEL_OPERATIONS", 5000)
	t.Logf("AKRI_MODEL_SEED=%d AKRI_MODEL_OPERATIONS=%d", seed, operations)
	m := newModel(t, seed)
	started := time.Now()
	m.run(operations)
	t.Logf("%d calls in %s: %v; %d kills", m.history.calls, time.Since(started).Round(time.Second), m.outcomes, m.kills)
	m.observeAll()
	started = time.Now()
	file := filepath.Join(os.TempDir(), fmt.Sprintf("akri-history-%d.html", seed))
	require.NoError(t, m.history.check(5*time.Minute, file), "AKRI_MODEL_SEED=%d", seed)
	t.Logf("checked in %s", time.Since(started).Round(time.Millisecond))
	m.requireNoSlotIsLost()
}

func setting(t *testing.T, name string, fallback int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	value, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return value
}

type model struct {
	*fixture
	seed      int
	replicas  []*process
	instances []string
	history   history

	mu       sync.Mutex
	outcomes map[callOutcome]int
	kills    int
}

func newModel(t *testing.T, seed int) *model {
	t.Helper()
	m := &model{
		fixture: newFixture(t, historyCapacity, modelNodes), seed: seed,
		replicas: processes(t, api.Config().Host, modelReplicas), outcomes: map[callOutcome]int{},
	}
	var devices []*discoveryv1.Device
	for i := range modelInstances {
		devices = append(devices, m.device("", fmt.Sprintf("d%d", i), true))
		m.instances = append(m.instances, devices[i].GetInstance())
	}
	var reporting sync.WaitGroup
	for i, node := range m.nodes {
		s := openReports(t, &replica{client: m.replicas[i%modelReplicas].client})
		reporting.Go(func() { s.send(m.newReport(node, devices...)) })
	}
	reporting.Wait()
	return m
}

// run makes each node call its share of the operations.
func (m *model) run(operations int) {
	ctx, stop := context.WithCancel(m.Context())
	var killer, nodes sync.WaitGroup
	killer.Go(func() { m.killReplicas(ctx) })
	for client := range m.nodes {
		nodes.Go(func() { m.runNode(client, operations/modelNodes) })
	}
	nodes.Wait()
	stop()
	killer.Wait()
}

// killReplicas kills and restarts one replica at a time.
func (m *model) killReplicas(ctx context.Context) {
	random := rand.New(rand.NewPCG(uint64(m.seed), 0))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(killInterval/2 + rand.N(killInterval)):
		}
		victim := m.replicas[random.IntN(len(m.replicas))]
		victim.kill()
		victim.start()
		m.kills++
	}
}

// runNode makes calls one after the other, except for those that the network repeats or delays.
func (m *model) runNode(client, calls int) {
	random := rand.New(rand.NewPCG(uint64(m.seed), uint64(client+1)))
	var delayed sync.WaitGroup
	defer delayed.Wait()
	for made := 0; made < calls; made++ {
		call := m.draw(random, client, made)
		fault, replica, delay := random.IntN(20), random.IntN(modelReplicas), time.Duration(random.Int64N(int64(maxNetworkDelay)))
		switch fault {
		case 0: // dropped before it arrives
			made--
		case 1: // repeated through another replica
			made++
			delayed.Go(func() { <-time.After(delay); m.call(client, (replica+1)%modelReplicas, call) })
			m.call(client, replica, call)
		case 2: // overtaken by the next call
			delayed.Go(func() { <-time.After(delay); m.call(client, replica, call) })
		default:
			m.call(client, replica, call)
		}
	}
}

// draw draws a call. All nodes use the same three Instances at about the same time.
func (m *model) draw(random *rand.Rand, client, made int) slotCall {
	first := made / 10 * 3
	call := slotCall{
		Instance: m.instances[(first+random.IntN(3))%len(m.instances)], Node: m.nodes[client], Release: random.IntN(5) < 3,
		Slots: []int{random.IntN(historyCapacity)},
	}
	if random.IntN(4) == 0 {
		call.Slots = append(call.Slots, (call.Slots[0]+1)%historyCapacity)
	}
	return call
}

func (m *model) call(client, replica int, call slotCall) {
	ctx, cancel := context.WithTimeout(context.Background(), modelCallTimeout)
	defer cancel()
	started := time.Now()
	outcome := callUnknown
	switch status.Code(sendCall(ctx, m.replicas[replica].client, call)) {
	case codes.OK:
		outcome = callDone
	case codes.FailedPrecondition:
		outcome = callRefused
	}
	m.history.record(client, call, started, outcome)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcomes[outcome]++
}

func sendCall(ctx context.Context, client instancev1.InstanceServiceClient, call slotCall) (err error) {
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

// observeAll adds the holders that the API server stores to the history.
func (m *model) observeAll() {
	for _, name := range m.instances {
		started := time.Now()
		usage := m.get(name).Spec.DeviceUsage
		require.Len(m, usage, historyCapacity)
		for index := range historyCapacity {
			m.history.observe(name, index, usage[akriv0.SlotName(name, index)], started)
		}
	}
}

// requireNoSlotIsLost releases the slots of each node, as device-plugin-host does, stops all
// replicas, so that no late write follows, and checks that every slot is free.
func (m *model) requireNoSlotIsLost() {
	for _, node := range m.nodes {
		ctx, cancel := context.WithTimeout(m.Context(), timeout)
		watch, err := m.replicas[0].client.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: node}, grpc.WaitForReady(true))
		require.NoError(m, err)
		first, err := watch.Recv()
		require.NoError(m, err)
		m.release(ctx, node, first.GetSnapshot().GetInstances())
		cancel()
	}
	for _, replica := range m.replicas {
		replica.stop()
	}
	for _, name := range m.instances {
		for slot, holder := range m.get(name).Spec.DeviceUsage {
			require.Empty(m, holder, slot)
		}
	}
}

func (m *model) release(ctx context.Context, node string, instances []*instancev1.Instance) {
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
