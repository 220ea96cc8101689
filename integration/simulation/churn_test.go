package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/integration/simulation"
)

const (
	churnNodes, churnReplicas     = 10, 3
	churnLocal, churnShared       = 5, 20 // devices of each node, devices that nodes can share
	churnKept                     = 5     // shared devices that all nodes always see, whose slots are used
	churnInterval                 = 100 * time.Millisecond
	churnKillInterval             = 10 * time.Second
	churnCallTimeout              = 2 * time.Second
	churnDefault, churnSettleTime = 20 * time.Second, time.Minute
)

// churn changes the devices of nodes, and slots, while replicas of instance-writer are killed.
type churn struct {
	*testing.T
	*simulation.Environment
	random        *rand.Rand
	configuration *akriv0.Configuration
	seen          map[string]map[string]bool // nodes that see a device, by Instance
	versions      map[string]int             // of the properties, by Instance
	held          map[string]bool            // by slot
	changes       int
	calls         sync.WaitGroup
	calling       sync.Map // the slots with a call in progress
}

// TestChurn checks that the Instances are those of the devices that the nodes see, and that no
// Instance is deleted while a node sees its device. AKRI_CHURN sets the duration, AKRI_CHURN_SEED
// repeats the changes of a run.
func TestChurn(t *testing.T) {
	duration, seed := durationFrom(t, "AKRI_CHURN", churnDefault), rand.Uint64()
	if text := os.Getenv("AKRI_CHURN_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("AKRI_CHURN=%s AKRI_CHURN_SEED=%d", duration, seed)
	c := newChurn(t, seed)

	ctx, stop := context.WithTimeout(t.Context(), duration)
	defer stop()
	kills := 0
	var killing sync.WaitGroup
	killing.Go(func() { kills = c.kill(ctx, min(churnKillInterval, duration/4)) })
	ticker := time.NewTicker(churnInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		c.change()
		<-ticker.C
	}
	killing.Wait()
	c.calls.Wait()
	t.Logf("%d changes, %d kills", c.changes, kills)

	settling, cancel := context.WithTimeout(t.Context(), churnSettleTime)
	defer cancel()
	_, err := c.Model.Await(settling)
	require.NoError(t, err)
	require.Empty(t, c.Model.Deleted(), "Instances were deleted while a node saw the device")
	c.requireAllInstances()
	c.requireNoRefusals()
	require.NotZero(t, kills)
	require.Greater(t, c.changes, int(duration/churnInterval/2))
}

// durationFrom returns the duration in the environment variable, or the default.
func durationFrom(t *testing.T, variable string, byDefault time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return byDefault
	}
	duration, err := time.ParseDuration(text)
	require.NoError(t, err, variable)
	return duration
}

func newChurn(t *testing.T, seed uint64) *churn {
	t.Helper()
	environment, err := simulation.New(t.Context(), simulation.Options{
		Nodes: churnNodes, Replicas: churnReplicas, Handlers: []string{"debugEcho"}, Progress: t.Logf,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, environment.Stop()) })
	c := &churn{
		T: t, Environment: environment, random: rand.New(rand.NewPCG(seed, 0)),
		seen: map[string]map[string]bool{}, versions: map[string]int{}, held: map[string]bool{},
	}
	c.configuration, err = c.Configure(t.Context(), "churn", "debugEcho", churnNodes)
	require.NoError(t, err)
	for _, node := range c.Nodes {
		for i := range churnKept {
			c.set(node, c.kept(i))
		}
		node.Start(t.Context())
	}
	ctx, cancel := context.WithTimeout(t.Context(), churnSettleTime)
	defer cancel()
	_, err = c.Model.Await(ctx)
	require.NoError(t, err)
	return c
}

// kill kills and restarts one replica after the other until ctx ends.
func (c *churn) kill(ctx context.Context, interval time.Duration) (kills int) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return kills
		case <-ticker.C:
		}
		if err := c.Writers[kills%churnReplicas].Restart(); err != nil {
			c.Errorf("restart replica: %v", err)
			return kills
		}
		kills++
	}
}

func (c *churn) kept(index int) *discoveryv1.Device {
	return simulation.Device(c.configuration, "", fmt.Sprintf("kept-%d", index), true, map[string]string{"KIND": "kept"})
}

func (c *churn) set(node *simulation.Node, device *discoveryv1.Device) {
	if c.seen[device.GetInstance()] == nil {
		c.seen[device.GetInstance()] = map[string]bool{}
	}
	c.seen[device.GetInstance()][node.Name] = true
	node.Set(c.configuration, device)
}

// change makes one random change. It leaves an Instance alone whose last change is not written yet,
// so that each deletion of an Instance belongs to the removal of its device.
func (c *churn) change() {
	node := c.Nodes[c.random.IntN(len(c.Nodes))]
	shared := c.random.IntN(2) == 0
	device := simulation.Device(c.configuration, node.Name, fmt.Sprintf("local-%d", c.random.IntN(churnLocal)), false, nil)
	if shared {
		device = simulation.Device(c.configuration, "", fmt.Sprintf("shared-%d", c.random.IntN(churnShared)), true, nil)
	}
	action := c.random.IntN(4)
	if action == 0 {
		device = c.kept(c.random.IntN(churnKept))
	}
	name := device.GetInstance()
	if !c.Model.Matches(name) {
		return
	}
	c.changes++
	switch sees := c.seen[name][node.Name]; {
	case action == 0:
		c.useSlot(node, name)
	case !sees:
		device.Properties = c.properties(name)
		c.set(node, device)
	case action == 1:
		c.changeProperties(device)
	default:
		delete(c.seen[name], node.Name)
		node.Remove(c.configuration, name)
	}
}

// changeProperties gives a device other properties, on all nodes that see it.
func (c *churn) changeProperties(device *discoveryv1.Device) {
	name := device.GetInstance()
	c.versions[name]++
	device.Properties = c.properties(name)
	for _, node := range c.Nodes {
		if c.seen[name][node.Name] {
			node.Set(c.configuration, device)
		}
	}
}

func (c *churn) properties(instance string) map[string]string {
	return map[string]string{"VERSION": strconv.Itoa(c.versions[instance])}
}

// useSlot reserves the slot of the node, or releases it if the node holds it. Like
// device-plugin-host, it repeats the call until it succeeds.
func (c *churn) useSlot(node *simulation.Node, instance string) {
	index := slices.Index(c.Nodes, node)
	slot := akriv0.SlotName(instance, index)
	if _, calling := c.calling.LoadOrStore(slot, true); calling {
		return
	}
	release, holder := c.held[slot], node.Name
	if release {
		holder = ""
	}
	c.held[slot] = !release
	c.Model.Hold(instance, slot, holder)
	claims := []*instancev1.SlotClaim{{Namespace: simulation.Namespace, Instance: instance, Index: uint32(index)}}
	c.calls.Go(func() {
		defer c.calling.Delete(slot)
		err := wait.PollUntilContextTimeout(c.Context(), churnInterval, churnSettleTime, true, func(ctx context.Context) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, churnCallTimeout)
			defer cancel()
			var err error
			if release {
				_, err = node.Slots().ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: node.Name, Claims: claims})
			} else {
				_, err = node.Slots().ReserveSlots(ctx, &instancev1.ReserveSlotsRequest{Node: node.Name, Claims: claims})
			}
			switch status.Code(err) {
			case codes.Unavailable, codes.DeadlineExceeded: // the replica was killed
				return false, nil
			default:
				return true, err
			}
		})
		if err != nil {
			c.Errorf("%s, release %t: %v", slot, release, err)
		}
	})
}

// requireAllInstances reads the Instances again, without a watch.
func (c *churn) requireAllInstances() {
	list, err := c.Instances.In(simulation.Namespace).List(c.Context(), metav1.ListOptions{})
	require.NoError(c, err)
	stored := map[string]bool{}
	for _, instance := range list.Items {
		stored[instance.Name] = true
		require.Len(c, instance.Spec.DeviceUsage, churnNodes, instance.Name)
		for slot, holder := range instance.Spec.DeviceUsage {
			require.Equal(c, c.held[slot], holder != "", slot)
		}
	}
	for name, nodes := range c.seen {
		require.Equal(c, len(nodes) > 0, stored[name], name)
		delete(stored, name)
	}
	require.Empty(c, stored, "Instances of no device")
}

// requireNoRefusals checks that no device was refused. A killed replica can delay a write.
func (c *churn) requireNoRefusals() {
	refused := map[string]int{}
	for _, node := range c.Nodes {
		node.Refused(refused)
	}
	delete(refused, "NotWritten")
	require.Empty(c, refused)
}
