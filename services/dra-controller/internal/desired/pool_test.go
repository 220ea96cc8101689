package desired_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/dra-controller/internal/desired"
)

// world is what dra-controller and the scheduler see: the devices, the slices in the API server,
// and the claims to which the scheduler has allocated devices.
type world struct {
	*testing.T
	random *rand.Rand
	nodes  []*corev1.Node
	// instances by name, in one namespace.
	instances map[string]*akriv0.Instance
	// removed are Instances that can be restored from a backup.
	removed map[string]*akriv0.Instance
	slices  map[string]*resourcev1.ResourceSlice
	// claims has the device of each claim.
	claims     map[types.UID]structured.DeviceID
	classes    lister
	cache      *cel.Cache
	nextClaim  int
	nextDevice int
}

type lister struct{ class *resourcev1.DeviceClass }

func (l lister) List() ([]*resourcev1.DeviceClass, error) {
	return []*resourcev1.DeviceClass{l.class}, nil
}
func (l lister) Get(string) (*resourcev1.DeviceClass, error) { return l.class, nil }

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		T: t, random: rand.New(rand.NewPCG(seed, 0)), instances: map[string]*akriv0.Instance{}, removed: map[string]*akriv0.Instance{},
		slices: map[string]*resourcev1.ResourceSlice{}, claims: map[types.UID]structured.DeviceID{},
		classes: lister{&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: akriv0.Driver}}},
		cache:   cel.NewCache(100, cel.Features{EnableConsumableCapacity: true}),
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		w.nodes = append(w.nodes, node(name))
	}
	return w
}

// plug adds a device of one of two Configurations, local or shared.
func (w *world) plug() {
	w.nextDevice++
	configuration := []string{"cameras", "meters"}[w.random.IntN(2)]
	instance := &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "factory", Name: fmt.Sprintf("%s-%06d", configuration, w.nextDevice)},
		Spec:       akriv0.InstanceSpec{ConfigurationName: configuration, Shared: w.random.IntN(2) == 0, Capacity: 1 + w.random.Int32N(3)},
	}
	w.instances[instance.Name] = instance
	w.see(instance)
}

// see sets the nodes that see the device. A local device keeps its node.
func (w *world) see(instance *akriv0.Instance) {
	switch {
	case instance.Spec.Shared && w.random.IntN(2) == 0: // so that slices have several devices
		instance.Spec.Nodes = [][]string{{"a", "b"}, {"a", "b", "c"}}[w.random.IntN(2)]
	case instance.Spec.Shared:
		instance.Spec.Nodes = nil
		for _, node := range w.nodes {
			if w.random.IntN(3) > 0 {
				instance.Spec.Nodes = append(instance.Spec.Nodes, node.Name)
			}
		}
	case instance.Spec.Nodes == nil:
		instance.Spec.Nodes = []string{w.nodes[w.random.IntN(len(w.nodes))].Name}
	}
}

// swap exchanges the nodes of shared devices.
func (w *world) swap() {
	for range 4 {
		_, first := pick(w.random, w.instances)
		_, second := pick(w.random, w.instances)
		if first.Spec.Shared && second.Spec.Shared {
			first.Spec.Nodes, second.Spec.Nodes = second.Spec.Nodes, first.Spec.Nodes
		}
	}
}

func pick[T any](random *rand.Rand, all map[string]T) (name string, value T) {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	if len(names) == 0 {
		return "", value
	}
	slices.Sort(names)
	name = names[random.IntN(len(names))]
	return name, all[name]
}

// change changes something at random.
func (w *world) change() {
	name, instance := pick(w.random, w.instances)
	switch action := w.random.IntN(15); {
	case action < 3 || instance == nil:
		w.plug()
	case action == 3:
		w.removed[name] = instance
		delete(w.instances, name)
	case action < 7:
		w.see(instance)
	case action == 7: // a capacity that is not lowered below what is allocated
		instance.Spec.Capacity += 1 + w.random.Int32N(2)
	case action == 8:
		name, _ := pick(w.random, w.slices)
		delete(w.slices, name)
	case action == 9: // a kubelet
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "alien"}}
		if _, own := pick(w.random, w.slices); own != nil {
			slice.Spec = *own.Spec.DeepCopy()
			if w.random.IntN(2) == 0 {
				slice.Spec.NodeSelector, slice.Spec.NodeName = nil, new("a")
			}
			slice.Spec.Pool.Generation += int64(w.random.IntN(3))
			w.slices["alien"] = slice
		}
	case action == 10:
		clear(w.slices)
	case action < 13:
		w.swap()
	case action == 13: // claims can still have its device
		if name, instance := pick(w.random, w.removed); instance != nil {
			w.instances[name] = instance
			delete(w.removed, name)
		}
	default: // another leader has crashed after half of its writes
		w.reconcile(w.random.IntN(3))
	}
}

func (w *world) published(pool string) (found []*resourcev1.ResourceSlice) {
	for _, slice := range w.slices {
		if slice.Spec.Pool.Name == pool {
			found = append(found, slice)
		}
	}
	return found
}

// reconcile writes what dra-controller writes, up to a number of writes. The scheduler allocates
// devices after each write.
func (w *world) reconcile(maxWrites int) (writes int) {
	pools := map[string][]desired.Offer{}
	for _, slice := range w.slices {
		pools[slice.Spec.Pool.Name] = nil
	}
	for _, instance := range w.instances {
		pool := all.Pool(instance)
		device := desired.Device{Instance: instance}
		for _, node := range w.nodes {
			if slices.Contains(instance.Spec.Nodes, node.Name) {
				device.Nodes = append(device.Nodes, node)
			}
		}
		pools[pool] = append(pools[pool], all.Offers(device)...)
	}
	for pool, offers := range pools {
		for _, change := range all.Changes(pool, w.published(pool), offers, owner) {
			if writes == maxWrites {
				return writes
			}
			writes++
			w.write(change)
			w.requireConsistent()
			w.schedule()
		}
	}
	return writes
}

func (w *world) write(change desired.Change) {
	switch {
	case change.Wanted == nil:
		delete(w.slices, change.Current.Name)
	case change.Current == nil:
		require.NotContains(w, w.slices, change.Wanted.Name)
		w.slices[change.Wanted.Name] = change.Wanted
	default:
		require.Contains(w, w.slices, change.Wanted.Name)
		require.LessOrEqual(w, len(change.Wanted.Spec.Devices), resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures)
		w.slices[change.Wanted.Name] = change.Wanted
	}
}

// requireConsistent requires that no device is in two pools, or twice in the generation of a pool
// that the scheduler can use, and that the slices of that generation state the same number.
func (w *world) requireConsistent() {
	w.Helper()
	generation, counts := map[string]int64{}, map[string]int64{}
	for name, slice := range w.slices {
		pool := slice.Spec.Pool
		if name != "alien" && pool.Generation > generation[pool.Name] {
			generation[pool.Name], counts[pool.Name] = pool.Generation, pool.ResourceSliceCount
		}
	}
	seen := map[string]string{}
	for name, slice := range w.slices {
		if name == "alien" || slice.Spec.Pool.Generation < generation[slice.Spec.Pool.Name] {
			continue
		}
		require.Equal(w, counts[slice.Spec.Pool.Name], slice.Spec.Pool.ResourceSliceCount)
		for _, device := range slice.Spec.Devices {
			require.NotContains(w, seen, device.Name, "also in %s", name)
			seen[device.Name] = name
		}
	}
}

// allocator is that of the scheduler.
func (w *world) allocator() structured.Allocator {
	state := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	one := map[resourcev1.QualifiedName]resource.Quantity{"slots": resource.MustParse("1")}
	for uid, device := range w.claims {
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, new(uid)))
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, one))
	}
	features := structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceTaints: true, PrioritizedList: true, PartitionableDevices: true, DeviceBindingAndStatus: true,
	}
	published := make([]*resourcev1.ResourceSlice, 0, len(w.slices))
	for _, slice := range w.slices {
		published = append(published, slice)
	}
	allocator, err := structured.NewAllocator(context.Background(), features, state, w.classes, published, w.cache)
	require.NoError(w, err)
	return allocator
}

// allocate lets the scheduler allocate a device on a node to a new claim for any device, or for the
// one of an Instance.
func (w *world) allocate(node *corev1.Node, instance string) (device structured.DeviceID, allocated bool) {
	request := &resourcev1.ExactDeviceRequest{DeviceClassName: akriv0.Driver, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
	if instance != "" {
		request.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf(`device.attributes["akri.sh"].instance == %q`, instance),
		}}}
	}
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "factory", Name: "claim", UID: "new"},
		Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: request}}}},
	}
	results, err := w.allocator().Allocate(context.Background(), node, []*resourcev1.ResourceClaim{claim})
	if err != nil || len(results) == 0 { // an alien slice can make a pool invalid
		return device, false
	}
	result := results[0].Devices.Results[0]
	return structured.MakeDeviceID(result.Driver, result.Pool, result.Device), true
}

// schedule ends a claim or allocates a device to one on a random node. It requires that no device
// has more claims than slots.
func (w *world) schedule() {
	w.Helper()
	for uid := range w.claims {
		if w.random.IntN(4) == 0 {
			delete(w.claims, uid)
		}
		break
	}
	device, allocated := w.allocate(w.nodes[w.random.IntN(len(w.nodes))], "")
	if !allocated {
		return
	}
	w.nextClaim++
	w.claims[types.UID(fmt.Sprint(w.nextClaim))] = device
	var count int32
	for _, other := range w.claims {
		if other.Device == device.Device {
			count++
		}
	}
	if instance := w.instances[device.Device.String()]; instance != nil {
		require.LessOrEqual(w, count, instance.Spec.Capacity, "claims of %s", device)
	}
}

// requireOffered requires that each node can allocate exactly the devices that it sees and that
// have a free slot.
func (w *world) requireOffered() {
	w.Helper()
	used := map[string]int32{}
	for _, device := range w.claims {
		used[device.Device.String()]++
	}
	for name, instance := range w.instances {
		for _, node := range w.nodes {
			_, allocated := w.allocate(node, name)
			sees := slices.Contains(instance.Spec.Nodes, node.Name)
			require.Equal(w, sees && used[name] < instance.Spec.Capacity, allocated, "%s on %s", name, node.Name)
		}
	}
}

// The allocator of the scheduler is the judge of the pools: it never allocates more slots than a
// device has, not between two writes and whatever others do to the slices, and in the end it can
// allocate each device that has a free slot on each node that sees the device. Then no write is
// left.
func TestPools(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed)
			for range 40 {
				for range 1 + w.random.IntN(3) {
					w.change()
				}
				w.reconcile(-1)
				require.Zero(t, w.reconcile(-1), "no write is left")
				require.NotContains(t, w.slices, "alien")
				w.requireOffered()
			}
		})
	}
}

// A device that moves between sets of nodes again and again does not keep its pool waiting: the
// generation stays. Each move is at most two writes.
func TestFlappingDevices(t *testing.T) {
	w := newWorld(t, 1)
	for range 100 {
		w.plug()
	}
	sets := [][]string{{"a", "b"}, {"a"}, {"b", "c"}, {"a", "b", "c", "d"}}
	var shared []*akriv0.Instance
	for _, instance := range w.instances {
		if instance.Spec.Shared {
			instance.Spec.Nodes = sets[0]
			shared = append(shared, instance)
		}
	}
	w.reconcile(-1)
	flap := func() (writes int) {
		shared[w.random.IntN(2)].Spec.Nodes = sets[w.random.IntN(len(sets))]
		return w.reconcile(-1)
	}
	for range 20 {
		flap()
	}
	before := map[string]int64{}
	for name, slice := range w.slices {
		before[name] = slice.Spec.Pool.Generation
	}
	for range 200 {
		require.LessOrEqual(t, flap(), 2)
	}
	for name, slice := range w.slices {
		require.Equal(t, before[name], slice.Spec.Pool.Generation)
	}
}

// A change of one device is one write, and the pool stays complete. Another slice is a new
// generation.
func TestWritesOfAPool(t *testing.T) {
	w := newWorld(t, 1)
	add := func(count int, nodes ...string) {
		for range count {
			w.nextDevice++
			name := fmt.Sprintf("cameras-%06d", w.nextDevice)
			w.instances[name] = &akriv0.Instance{
				ObjectMeta: metav1.ObjectMeta{Namespace: "factory", Name: name},
				Spec:       akriv0.InstanceSpec{ConfigurationName: "cameras", Shared: true, Capacity: 1, Nodes: nodes},
			}
		}
	}
	const pool = "factory/configuration/cameras"
	first := func() *resourcev1.ResourceSlice { return w.slices[desired.SliceName(pool, 0)] }
	add(1, "a", "b")
	require.Equal(t, 1, w.reconcile(-1))
	add(63, "a", "b")
	require.Equal(t, 1, w.reconcile(-1))
	require.Len(t, first().Spec.Devices, 64)
	require.EqualValues(t, 1, first().Spec.Pool.Generation)

	add(1, "a", "b")
	require.Equal(t, 2, w.reconcile(-1), "the slice is full")
	require.Equal(t, resourcev1.ResourcePool{Name: pool, Generation: 2, ResourceSliceCount: 2}, first().Spec.Pool)
	for _, instance := range w.instances {
		instance.Spec.Nodes = []string{"a", "b", "c"}
	}
	require.Equal(t, 2, w.reconcile(-1), "all devices of a slice get other nodes")
	require.EqualValues(t, 2, first().Spec.Pool.Generation)
	delete(w.instances, "cameras-000001")
	require.Equal(t, 1, w.reconcile(-1))

	w.instances["cameras-000002"].Spec.Nodes = []string{"a"}
	require.Equal(t, 4, w.reconcile(-1), "a set of nodes gets a slice, and the pool a spare one")
	require.EqualValues(t, 4, first().Spec.Pool.ResourceSliceCount)
	w.instances["cameras-000003"].Spec.Nodes = []string{"b"}
	require.Equal(t, 2, w.reconcile(-1), "the device leaves its slice, and the spare one gets it")
	require.EqualValues(t, 3, first().Spec.Pool.Generation)
	clear(w.instances)
	require.Equal(t, 4, w.reconcile(-1))
	require.Empty(t, w.slices)
}

// The pool of a device does not depend on what changes while it exists.
func TestPoolOfADevice(t *testing.T) {
	shared, local := device(true, node("a")).Instance, device(false, node("a")).Instance
	require.Equal(t, "factory/configuration/cameras", all.Pool(shared))
	require.Equal(t, "factory/node/a", all.Pool(local))
	require.Equal(t, "factory/cameras-8120fe", desired.Features{}.Pool(shared))
	changed := shared.DeepCopy()
	changed.Spec.Nodes, changed.Spec.Capacity = []string{"b", "c"}, 9
	require.Equal(t, all.Pool(shared), all.Pool(changed))
	for _, instance := range []*akriv0.Instance{shared, local} {
		namespace, name := akriv0.InstanceOfDevice(all.Pool(instance), instance.Name)
		require.Equal(t, "factory/cameras-8120fe", namespace+"/"+name)
		namespace, name = akriv0.InstanceOfDevice(desired.Features{}.Pool(instance), instance.Name+"-0")
		require.Equal(t, "factory/cameras-8120fe", namespace+"/"+name)
	}
	require.True(t, equality.Semantic.DeepEqual(shared, device(true, node("a")).Instance))
}
