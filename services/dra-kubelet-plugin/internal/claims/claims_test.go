package claims_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"akri.sh/libs/node"
	"akri.sh/libs/node/instancetest"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/dra-kubelet-plugin/internal/cdi"
	"akri.sh/services/dra-kubelet-plugin/internal/claims"
)

const (
	first  = "c-111111"
	second = "c-222222"
)

var unavailable = status.Error(codes.Unavailable, "no replica")

// recorder counts what the Manager reports.
type recorder struct {
	mu                        sync.Mutex
	prepared                  int
	released, takenBack, lost int
}

func (r *recorder) SetPrepared(claims int) { r.update(func() { r.prepared = claims }) }
func (r *recorder) Released(slots int)     { r.update(func() { r.released += slots }) }
func (r *recorder) Lost(back, taken int)   { r.update(func() { r.takenBack += back; r.lost += taken }) }
func (r *recorder) update(f func())        { r.mu.Lock(); defer r.mu.Unlock(); f() }
func (r *recorder) counts() [4]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return [4]int{r.prepared, r.released, r.takenBack, r.lost}
}

// fixture is a Manager on node-a, which sees the devices first and second.
type fixture struct {
	*claims.Manager
	t         *testing.T
	store     *node.Store
	writer    *instancetest.Writer
	directory string
	dev       string
	metrics   *recorder
}

func newFixture(t *testing.T) *fixture {
	store := node.NewStore("node-a")
	f := &fixture{t: t, store: store, writer: instancetest.New(), directory: t.TempDir(), dev: t.TempDir()}
	f.writer.OnChange = store.SetInstances // the watch is never late
	for _, name := range []string{first, second} {
		require.NoError(t, os.WriteFile(filepath.Join(f.dev, name), nil, 0o600))
	}
	f.see(first, second)
	f.start()
	return f
}

// start starts the Manager, or another one after the process has ended.
func (f *fixture) start() {
	files, err := cdi.NewFiles(f.directory, f.dev)
	require.NoError(f.t, err)
	f.metrics = &recorder{}
	f.Manager, err = claims.New(claims.Options{
		Client: f.writer.Client(), Store: f.store, Files: files, Log: zap.NewNop(), Metrics: f.metrics,
	})
	require.NoError(f.t, err)
}

func (f *fixture) see(instances ...string) {
	var devices []*discoveryv1.Device
	for _, name := range instances {
		devices = append(devices, &discoveryv1.Device{
			Id: name, Instance: name, Properties: map[string]string{"URL": "rtsp://" + name},
			DeviceNodes: []*discoveryv0.DeviceSpec{{HostPath: "/dev/" + name, Permissions: "rw"}},
		})
	}
	f.store.SetDevices([]*discoveryv1.ConfigurationDevices{{Namespace: "default", Name: "c", Complete: true, Devices: devices}})
}

// put sets the slots of an Instance of the Configuration c.
func (f *fixture) put(instance string, usage ...string) {
	f.writer.PutDevice(instance, instance, "c", uint32(len(usage)), usage...)
}

// run runs the comparison in the background until the test ends.
func (f *fixture) run() {
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	f.t.Cleanup(func() { cancel(); require.NoError(f.t, <-done) })
}

// files returns the paths of the records. There is nothing else but their metadata.
func (f *fixture) files() (records []string) {
	entries, err := os.ReadDir(f.directory)
	require.NoError(f.t, err)
	for _, entry := range entries {
		path := filepath.Join(f.directory, entry.Name())
		if uid, found := strings.CutPrefix(entry.Name(), "akri.sh-metadata_"); found {
			require.FileExists(f.t, filepath.Join(f.directory, "akri.sh-claim_"+uid+".json"))
			continue
		}
		records = append(records, path)
	}
	return records
}

// result is the allocation of an Instance for a request.
func result(request, instance string) *instancev1.AllocatedDevice {
	return &instancev1.AllocatedDevice{
		Request: request, Pool: "default/" + instance, Device: instance, ShareId: new("share-" + instance),
	}
}

// ofSlot is the allocation of a slot that is a device.
func ofSlot(request, instance, slot string) *instancev1.AllocatedDevice {
	return &instancev1.AllocatedDevice{Request: request, Pool: "default/" + instance, Device: slot}
}

// prepare prepares a claim that is allocated to the devices.
func (f *fixture) prepare(ctx context.Context, uid string, devices ...*instancev1.AllocatedDevice) ([]*drav1.Device, error) {
	f.writer.PutClaim("default", "claim-"+uid, uid, devices...)
	return f.Prepare(ctx, &drav1.Claim{Namespace: "default", Name: "claim-" + uid, Uid: uid})
}

// The claim gets the slot that the scheduler allocated, or another one if a device plugin has it.
func TestSlotsAsDevices(t *testing.T) { synctest.Test(t, slotsAsDevices) }

func slotsAsDevices(t *testing.T) {
	t.Helper()
	f := newFixture(t)
	f.put(first, "", "", "", "")
	devices, err := f.prepare(t.Context(), "one", ofSlot("r", first, first+"-1"), ofSlot("s", first, first+"-3"))
	require.NoError(t, err)
	require.Equal(t, []*drav1.Device{
		{RequestNames: []string{"r"}, PoolName: "default/" + first, DeviceName: first + "-1", CdiDeviceIds: []string{"akri.sh/claim=one-r"}},
		{RequestNames: []string{"s"}, PoolName: "default/" + first, DeviceName: first + "-3", CdiDeviceIds: []string{"akri.sh/claim=one-s"}},
	}, devices)
	require.Equal(t, []string{"", "D:one:node-a", "", "D:one:node-a"}, f.writer.Usage(first))

	f.put(first, "node-a", "D:one:node-a", "", "D:one:node-a")
	_, err = f.prepare(t.Context(), "two", ofSlot("r", first, first+"-0"))
	require.NoError(t, err)
	require.Equal(t, []string{"node-a", "D:one:node-a", "D:two:node-a", "D:one:node-a"}, f.writer.Usage(first))
	require.NoError(t, f.Unprepare(t.Context(), "one"))
	require.Equal(t, []string{"node-a", "", "D:two:node-a", ""}, f.writer.Usage(first))

	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = f.prepare(ctx, "three", ofSlot("r", first, second+"-0"))
	require.Equal(t, codes.NotFound, status.Code(err))
}

func TestPrepareAndUnprepare(t *testing.T) {
	f := newFixture(t)
	f.put(first, "", "")
	devices, err := f.prepare(t.Context(), "one", result("r", first))
	require.NoError(t, err)
	require.Equal(t, []*drav1.Device{{
		RequestNames: []string{"r"}, PoolName: "default/" + first, DeviceName: first, ShareId: new("share-" + first),
		CdiDeviceIds: []string{"akri.sh/claim=one-r"},
	}}, devices)
	used := f.writer.Usage(first)
	require.ElementsMatch(t, []string{"D:one:node-a", ""}, used)
	require.Len(t, f.files(), 1)
	require.Equal(t, [4]int{1}, f.metrics.counts())

	again, err := f.prepare(t.Context(), "one", result("r", first))
	require.NoError(t, err, "a repeated call succeeds")
	require.Equal(t, devices, again)
	require.Equal(t, used, f.writer.Usage(first))

	require.NoError(t, f.Unprepare(t.Context(), "one"))
	require.Equal(t, []string{"", ""}, f.writer.Usage(first))
	require.Empty(t, f.files())
	require.NoError(t, f.Unprepare(t.Context(), "one"), "a repeated call succeeds")
	require.Equal(t, [4]int{}, f.metrics.counts())
}

// A container gets the devices of its requests, merged as with device plugins: the kubelet collects
// the CDI devices of all devices of a request.
func TestRequests(t *testing.T) {
	f := newFixture(t)
	f.put(first, "", "")
	f.put(second, "")
	devices, err := f.prepare(t.Context(), "one", result("r", second), result("r", first), result("s/preferred", first))
	require.NoError(t, err)
	require.Len(t, devices, 3)
	require.Equal(t, []string{"akri.sh/claim=one-r"}, devices[0].GetCdiDeviceIds())
	require.Empty(t, devices[1].GetCdiDeviceIds())
	require.Equal(t, []string{"s"}, devices[2].GetRequestNames())
	require.Equal(t, []string{"akri.sh/claim=one-s"}, devices[2].GetCdiDeviceIds())
	require.Equal(t, []string{"D:one:node-a", "D:one:node-a"}, f.writer.Usage(first), "a slot for each allocation")
	require.Equal(t, []string{"D:one:node-a"}, f.writer.Usage(second))
}

// Admin access to a device takes no slot.
func TestAdminAccess(t *testing.T) {
	f := newFixture(t)
	f.put(first, "node-b")
	diagnostics := result("r", first)
	diagnostics.AdminAccess = true
	_, err := f.prepare(t.Context(), "one", diagnostics)
	require.NoError(t, err)
	require.Len(t, f.files(), 1)
	require.Equal(t, []string{"node-b"}, f.writer.Usage(first))
	require.Zero(t, f.writer.Calls())
}

func TestPrepareWaitsForSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(first, "node-b", "D:other:node-a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := f.prepare(ctx, "one", result("r", first))
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		require.ErrorContains(t, err, `all slots of Instance "c-111111" are reserved: `+
			"by a ResourceClaim with uid other on node node-a, a device plugin on node node-b")
		require.Empty(t, f.files())

		answered := make(chan error, 1)
		go func() {
			_, err := f.prepare(t.Context(), "one", result("r", first))
			answered <- err
		}()
		synctest.Wait()
		f.put(first, "", "D:other:node-a")
		require.NoError(t, <-answered)
		require.Equal(t, []string{"D:one:node-a", "D:other:node-a"}, f.writer.Usage(first))
	})
}

// The scheduler can allocate a device before this node sees it.
func TestPrepareWaitsForDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.see(second)
		f.put(first, "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := f.prepare(ctx, "one", result("r", first))
		require.Equal(t, codes.NotFound, status.Code(err))
		require.ErrorContains(t, err, `node "node-a" does not see the device of Instance "default/c-111111"`)
		answered := make(chan error, 1)
		go func() {
			_, err := f.prepare(t.Context(), "one", result("r", first))
			answered <- err
		}()
		synctest.Wait()
		f.see(first, second)
		require.NoError(t, <-answered)
	})
}

// instance-writer does not return a claim while an Instance does not list this node. The request is
// repeated when the Instances change, and rarely otherwise: each one is a read of the API server.
func TestPrepareWaitsForInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, cancel := context.WithTimeout(t.Context(), 39*time.Second)
		defer cancel()
		_, err := f.prepare(ctx, "one", result("r", first))
		require.Equal(t, codes.NotFound, status.Code(err))
		require.Equal(t, 8, f.writer.Reads())
		require.Empty(t, f.files())

		answered := make(chan error, 1)
		go func() {
			_, err := f.prepare(t.Context(), "one", result("r", first))
			answered <- err
		}()
		synctest.Wait()
		started := time.Now()
		f.put(first, "")
		require.NoError(t, <-answered)
		require.Equal(t, started, time.Now())
	})
}

// The user needs the reason why the claim was not prepared before its time was over.
func TestInterruptedPrepareReturnsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(first, "")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		held := status.Error(codes.FailedPrecondition, "slot 0 is held")
		f.writer.FailNext(held, status.FromContextError(context.Canceled).Err())
		f.writer.OnCall = func(call int) {
			if call == 2 {
				cancel()
			}
		}
		_, err := f.prepare(ctx, "one", result("r", first))
		require.Equal(t, 2, f.writer.Calls())
		require.ErrorIs(t, err, held)
	})
}

// The kubelet unprepares the claims of deleted Pods while their preparations wait, and forgets
// them. Whatever the preparations wait for, and whenever that changes, in the end a claim that was
// unprepared last has neither file nor slot, and one that was prepared has both.
func TestUnpreparedWhileItWaits(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) { unpreparedWhileItWaits(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func unpreparedWhileItWaits(t *testing.T, random *rand.Rand) {
	t.Helper()
	const claimed = 3
	f := newFixture(t)
	f.run()
	usages := [][]string{{"", "", ""}, {"node-b", "node-b", "node-b"}}
	results := map[string]chan error{}
	for range 40 {
		uid := fmt.Sprintf("claim-%d", random.IntN(claimed))
		switch random.IntN(8) {
		case 0, 1, 2:
			if results[uid] != nil {
				continue // the kubelet prepares a claim once at a time
			}
			result, answered := result("r", first), make(chan error, 1)
			results[uid] = answered
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
				defer cancel()
				_, err := f.prepare(ctx, uid, result)
				answered <- err
			}()
			synctest.Wait() // the call has arrived
		case 3, 4:
			require.NoError(t, f.Unprepare(t.Context(), uid))
			delete(results, uid)
		case 5:
			f.see([][]string{{first, second}, {second}}[random.IntN(2)]...)
		case 6:
			f.put(first, usages[random.IntN(2)]...)
		case 7:
			<-time.After(time.Duration(random.IntN(10)) * time.Second)
		}
		if random.IntN(2) == 0 {
			synctest.Wait()
		}
	}

	f.see(first, second)
	f.put(first, usages[0]...)
	<-time.After(time.Minute)
	files := strings.Join(f.files(), " ")
	for i := range claimed {
		uid := fmt.Sprintf("claim-%d", i)
		slots := slices.Contains(f.writer.Usage(first), "D:"+uid+":node-a")
		switch answered := results[uid]; {
		case answered == nil:
			require.False(t, slots || strings.Contains(files, uid), "%s is unprepared: %v, %s", uid, f.writer.Usage(first), files)
		case <-answered == nil:
			require.True(t, slots && strings.Contains(files, uid), "%s is prepared: %v, %s", uid, f.writer.Usage(first), files)
		}
	}
}

func TestPrepareErrors(t *testing.T) {
	f := newFixture(t)
	f.put(first, "", "")
	invalid := status.Error(codes.InvalidArgument, "the name is malformed")
	f.writer.FailNextReads(invalid)
	_, err := f.prepare(t.Context(), "one", result("r", first))
	require.ErrorIs(t, err, invalid)

	// Another node reserves the slot first.
	f.writer.FailNext(status.Error(codes.FailedPrecondition, "held"), unavailable)
	_, err = f.prepare(t.Context(), "one", result("r", first))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"D:one:node-a", ""}, f.writer.Usage(first))
}

// A process that is killed at any moment leaks neither slots nor files.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(first, "", "", "D:gone:node-a", "D:elsewhere:node-b")
		_, err := f.prepare(t.Context(), "one", result("r", first))
		require.NoError(t, err)
		used := f.writer.Usage(first)

		f.start()
		f.run()
		synctest.Wait()
		require.Equal(t, "", f.writer.Usage(first)[2], "its claim is not prepared")
		require.Equal(t, used[:2], f.writer.Usage(first)[:2])
		require.Equal(t, "D:elsewhere:node-b", f.writer.Usage(first)[3])
		require.Equal(t, [4]int{1, 1}, f.metrics.counts())
		_, err = f.prepare(t.Context(), "one", result("r", first))
		require.NoError(t, err)
		require.Equal(t, used[:2], f.writer.Usage(first)[:2])
		require.NoError(t, f.Unprepare(t.Context(), "one"))
		require.Equal(t, []string{"", "", "", "D:elsewhere:node-b"}, f.writer.Usage(first))
	})
}

// After a reboot there are no files. A claim keeps its slot, so that it does not hold two until its
// Pod ends.
func TestReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(first, "", "", "D:one:node-a", "D:one:node-b", "")
		_, err := f.prepare(t.Context(), "one", result("r", first))
		require.NoError(t, err)
		require.Equal(t, []string{"", "", "D:one:node-a", "D:one:node-b", ""}, f.writer.Usage(first))
		f.put(first, "D:one:node-a", "", "D:one:node-a", "D:one:node-b", "")
		f.run()
		synctest.Wait()
		require.Equal(t, []string{"", "", "D:one:node-a", "D:one:node-b", ""}, f.writer.Usage(first), "one slot for one device")
	})
}

// instance-writer refuses calls while it has too many, or while it does not know the node yet.
func TestPrepareWaitsForWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(first, "")
		refusals := []error{status.Error(codes.ResourceExhausted, "too many calls"), status.Error(codes.PermissionDenied, "unknown node"), unavailable}
		f.writer.FailNextReads(refusals...)
		f.writer.FailNext(refusals...)
		_, err := f.prepare(t.Context(), "one", result("r", first))
		require.NoError(t, err)
		require.Equal(t, []string{"D:one:node-a"}, f.writer.Usage(first))
	})
}

// The process ends after the slot was reserved and before it got the response.
func TestUnansweredReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(first, "", "")
		f.writer.FailNext(unavailable)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := f.prepare(ctx, "one", result("r", first))
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.Len(t, f.files(), 1, "the slot may be reserved")
		f.start()
		f.run()
		require.NoError(t, f.Unprepare(t.Context(), "one"))
		synctest.Wait()
		require.Equal(t, []string{"", ""}, f.writer.Usage(first))
		require.Empty(t, f.files())
	})
}

// A Pod can end while instance-writer is down. Its slot is released later.
func TestUnprepareWithoutWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.run()
		f.put(first, "")
		_, err := f.prepare(t.Context(), "one", result("r", first))
		require.NoError(t, err)
		synctest.Wait() // the comparison of this change must not repeat the release
		f.writer.FailNext(unavailable, unavailable, unavailable)
		require.NoError(t, f.Unprepare(t.Context(), "one"))
		require.Empty(t, f.files())
		require.Equal(t, []string{"D:one:node-a"}, f.writer.Usage(first))
		<-time.After(5 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{""}, f.writer.Usage(first))
	})
}

// The Instance is deleted and created again, or edited, while a container uses the device.
func TestLostSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.run()
		f.put(first, "")
		f.put(second, "")
		_, err := f.prepare(t.Context(), "one", result("r", first), result("r", second))
		require.NoError(t, err)
		f.put(first, "")
		f.put(second, "node-b")
		synctest.Wait()
		require.Equal(t, []string{"D:one:node-a"}, f.writer.Usage(first))
		require.Equal(t, []string{"node-b"}, f.writer.Usage(second))
		require.Equal(t, [4]int{1, 0, 1, 1}, f.metrics.counts(), "each is counted once")
	})
}

// The health of a device is that this node sees it. A claim keeps its device in the list, in each
// pool in which it can be: the Instance may not exist any more.
func TestHealth(t *testing.T) {
	f := newFixture(t)
	devices, _, err := f.Health(t.Context())
	require.NoError(t, err)
	require.Nil(t, devices, "instance-writer has sent no Instances")
	f.put(first, "")
	f.put(second, "")
	_, err = f.prepare(t.Context(), "one", result("r", first))
	require.NoError(t, err)
	expect := func(expected ...claims.Health) {
		t.Helper()
		devices, _, err := f.Health(t.Context())
		require.NoError(t, err)
		require.Equal(t, expected, devices)
	}
	claimed := func(healthy bool) (all []claims.Health) {
		for _, pool := range []string{"default/" + first, "default/configuration/c", "default/node/node-a"} {
			all = append(all, claims.Health{Pool: pool, Name: first, Healthy: healthy})
		}
		return append(all, claims.Health{Pool: "default/node/node-a", Name: second, Healthy: true})
	}
	expect(claimed(true)...)
	f.see(second)
	expect(claimed(false)...)
	f.writer.Remove(first)
	expect(claimed(false)...)
	require.NoError(t, f.Unprepare(t.Context(), "one"))
	expect(claimed(false)[3])
}

// The claim of a file that cannot be read keeps its slots until it is unprepared.
func TestDamagedFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(first, "")
		_, err := f.prepare(t.Context(), "one", result("r", first))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(f.files()[0], []byte("{"), 0o600))
		f.start()
		f.run()
		synctest.Wait()
		require.Equal(t, []string{"D:one:node-a"}, f.writer.Usage(first))
		require.NoError(t, f.Unprepare(t.Context(), "one"))
		require.Equal(t, []string{""}, f.writer.Usage(first))
		require.Empty(t, f.files())
	})
}

// Two instances of the service work with the same files while one replaces the other: the kubelet
// calls either, and each learns late what the other did. In the end each prepared claim has its
// slot, and no other claim has one.
func TestTwoInstances(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { twoInstances(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func twoInstances(t *testing.T, random *rand.Rand) {
	t.Helper()
	const claimed = 4
	a := newFixture(t)
	b := &fixture{t: t, store: node.NewStore("node-a"), writer: a.writer, directory: a.directory, dev: a.dev}
	b.see(first, second)
	b.start()
	instances := []*fixture{a, b}
	var mu sync.Mutex
	var late [2]func() // the last change that a store has not got yet
	deliver := func(i int) {
		mu.Lock()
		change := late[i]
		late[i] = nil
		mu.Unlock()
		if change != nil {
			change()
		}
	}
	a.writer.OnChange = func(list []*instancev1.Instance, revision uint64) {
		mu.Lock()
		defer mu.Unlock()
		for i, instance := range instances {
			late[i] = func() { instance.store.SetInstances(list, revision) }
		}
	}
	a.put(first, make([]string, claimed)...)
	for i, instance := range instances {
		deliver(i)
		instance.run()
	}

	prepared := map[string]bool{}
	for range 60 {
		i := random.IntN(2)
		uid := fmt.Sprintf("claim-%d", random.IntN(claimed))
		switch random.IntN(5) {
		case 0, 1:
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			watch := time.AfterFunc(time.Second, func() { deliver(i) }) // late, but not later than a preparation waits
			_, err := instances[i].prepare(ctx, uid, result("r", first))
			cancel()
			watch.Stop()
			require.NoError(t, err)
			prepared[uid] = true
		case 2, 3:
			require.NoError(t, instances[i].Unprepare(t.Context(), uid))
			delete(prepared, uid)
		case 4:
			deliver(i)
		}
	}

	// Each gets what the other did, until nothing changes.
	for range 10 {
		for i := range instances {
			deliver(i)
			synctest.Wait()
		}
	}
	want := make([]string, claimed)
	for i, uid := range slices.Sorted(maps.Keys(prepared)) {
		want[i] = "D:" + uid + ":node-a"
	}
	require.ElementsMatch(t, want, a.writer.Usage(first))
	require.Len(t, a.files(), len(prepared))
}
