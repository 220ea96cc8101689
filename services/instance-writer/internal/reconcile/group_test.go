package reconcile //nolint:testpackage // runs of a group are not exported

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/batch"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/merge"
)

const name = "cam-abc123"

var cam = &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cam", Namespace: "ns", UID: "uid"}}

func seen(node, id string, shared bool) merge.Device {
	return merge.Device{Node: node, ID: id, Shared: shared, Complete: true, Properties: merge.NewProperties(map[string]string{"FROM": node})}
}

// longName is the name of a device's Instance if another device has the short name.
func longName(d merge.Device) string {
	return akriv0.InstanceName("cam", akriv0.LongDigest(d.ID, d.Node, d.Shared))
}

// instances holds the Instances of a group as the API server does.
type instances struct {
	byName  map[string]*akriv0.Instance
	version int
}

func newInstances() *instances { return &instances{byName: map[string]*akriv0.Instance{}} }

// write replaces the Instance if it has not changed since base was read.
func (s *instances) write(t require.TestingT, name string, base, desired *akriv0.Instance) (*akriv0.Instance, error) {
	current := s.byName[name]
	if (base == nil) != (current == nil) || base != nil && base.ResourceVersion != current.ResourceVersion {
		return nil, apierrors.NewConflict(akriv0.InstanceResource.GroupResource(), name, errors.New("changed"))
	}
	if desired == nil {
		delete(s.byName, name)
		return nil, nil //nolint:nilnil // nil means that it does not exist
	}
	if current != nil {
		require.Equal(t, identity(current), identity(desired), "the name %s changes hands", name)
	}
	s.version++
	written := desired.DeepCopy()
	written.ResourceVersion = strconv.Itoa(s.version)
	s.byName[name] = written
	return written, nil
}

// identity returns the id of the device, and the node of a local one.
func identity(i *akriv0.Instance) string {
	if i.Spec.Shared {
		return i.Annotations[akriv0.DeviceIDAnnotation]
	}
	return i.Annotations[akriv0.DeviceIDAnnotation] + " on " + strings.Join(i.Spec.Nodes, ",")
}

// names returns the names of the Instances by identity.
func (s *instances) names() map[string][]string {
	names := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		names[identity(s.byName[name])] = append(names[identity(s.byName[name])], name)
	}
	return names
}

// replica is an instance-writer with a cache and the reports of some nodes. It is the batch.Store
// of its runs.
type replica struct {
	api     *instances
	cache   map[string]*akriv0.Instance
	reports map[string][]merge.Device
	// beforeEdit runs before each edit. nil: nothing runs.
	beforeEdit func()
	// failing is the error of each write of the Instance with this name.
	failing map[string]error
	// edited are the names of all edits.
	edited []string
	t      require.TestingT
}

func newReplica(api *instances) *replica {
	return &replica{api: api, cache: map[string]*akriv0.Instance{}, reports: map[string][]merge.Device{}}
}

func (r *replica) sync() { r.cache = maps.Clone(r.api.byName) }

func (r *replica) Cached(key types.NamespacedName) *akriv0.Instance {
	if r.beforeEdit != nil {
		r.beforeEdit()
	}
	r.edited = append(r.edited, key.Name)
	return r.cache[key.Name]
}

func (r *replica) Get(_ context.Context, key types.NamespacedName) (*akriv0.Instance, error) {
	return r.api.byName[key.Name], nil
}

func (r *replica) Create(_ context.Context, i *akriv0.Instance) (*akriv0.Instance, error) {
	return r.write(i.Name, nil, i)
}

func (r *replica) Update(_ context.Context, i *akriv0.Instance) (*akriv0.Instance, error) {
	return r.write(i.Name, i, i)
}

func (r *replica) Delete(_ context.Context, i *akriv0.Instance) error {
	_, err := r.write(i.Name, i, nil)
	return err
}

func (r *replica) write(name string, base, desired *akriv0.Instance) (*akriv0.Instance, error) {
	if err := r.failing[name]; err != nil {
		return nil, err
	}
	written, err := r.api.write(r.t, name, base, desired)
	if err != nil {
		return nil, err
	}
	if r.cache[name] = written; written == nil {
		delete(r.cache, name)
	}
	return written, nil
}

func (r *replica) group(configuration *akriv0.Configuration) merge.GroupInput {
	group := merge.GroupInput{
		Input:     merge.Input{Name: name, Configuration: configuration},
		Instances: slices.Collect(maps.Values(r.cache)),
	}
	for _, devices := range r.reports {
		group.Seen = append(group.Seen, devices...)
	}
	group.Absent = func(node string) bool {
		devices, reported := r.reports[node]
		return reported && len(devices) == 0
	}
	return group
}

func (r *replica) run(t require.TestingT, group merge.GroupInput) (*groupRun, []merge.Refusal, error) {
	r.t = t
	none := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "none"})
	conflicts := prometheus.NewCounter(prometheus.CounterOpts{Name: "conflicts"})
	run := &groupRun{
		run: run{isNew: true}, key: cluster.Group{Configuration: cluster.Key(group.Configuration), ShortName: group.Name},
		writer: batch.NewWriter(r, batch.Metrics{Seconds: none, Batch: none, Conflicts: conflicts}),
	}
	refusals, err := run.write(context.Background(), group)
	return run, refusals, err
}

func (r *replica) reconcile(t require.TestingT) []merge.Refusal {
	_, refusals, err := r.run(t, r.group(cam))
	require.NoError(t, err)
	return refusals
}

func TestDevicesWithOneShortName(t *testing.T) {
	one, two, local := seen("a", "one", true), seen("b", "two", true), seen("b", "local", false)
	for title, c := range map[string]struct {
		steps [][]merge.Device // the reports of all nodes, one after the other
		want  map[string]string
	}{
		"the first by node gets the short name": {
			[][]merge.Device{{two, one}}, map[string]string{"one": name, "two": longName(two)},
		},
		"the first by id gets the short name": {
			[][]merge.Device{{two, local}}, map[string]string{"local on b": name, "two": longName(two)},
		},
		"a device keeps the short name": {
			[][]merge.Device{{two}, {two, one}}, map[string]string{"one": longName(one), "two": name},
		},
		"a device keeps its long name": {
			[][]merge.Device{{one, two}, {two}}, map[string]string{"two": longName(two)},
		},
		"a free short name goes to the next device without a name": {
			[][]merge.Device{{one, two}, {two}, {two, local, one}}, map[string]string{"one": name, "two": longName(two), "local on b": longName(local)},
		},
		"a local device of two nodes": {
			[][]merge.Device{{seen("a", "x", false), seen("b", "x", false)}},
			map[string]string{"x on a": name, "x on b": longName(seen("b", "x", false))},
		},
	} {
		t.Run(title, func(t *testing.T) {
			r := newReplica(newInstances())
			for _, step := range c.steps {
				r.reports = map[string][]merge.Device{"a": nil, "b": nil}
				for _, device := range step {
					r.reports[device.Node] = append(r.reports[device.Node], device)
				}
				require.Empty(t, r.reconcile(t))
			}
			got := map[string]string{}
			for device, names := range r.api.names() {
				got[device] = strings.Join(names, ",")
			}
			require.Equal(t, c.want, got)
		})
	}
}

// Two replicas whose caches lag can give both names to one device.
func TestDeviceWithBothNames(t *testing.T) {
	r, other := newReplica(newInstances()), seen("b", "x", true)
	r.reports["a"], r.reports["b"] = []merge.Device{seen("a", "id", true)}, []merge.Device{other}
	r.reconcile(t)
	short := r.api.byName[name].DeepCopy()
	short.Annotations[akriv0.DeviceIDAnnotation], short.Spec.Nodes = "x", []string{"c"}
	r.api.byName[name] = short
	delete(r.reports, "b")
	r.sync()
	r.reconcile(t)
	require.Equal(t, map[string][]string{"id": {longName(seen("", "id", true))}, "x": {longName(other), name}}, r.api.names(), "node b does not report")
	r.reports["b"] = []merge.Device{other}
	r.reconcile(t)
	require.Equal(t, map[string][]string{"id": {longName(seen("", "id", true))}, "x": {name}}, r.api.names())
}

// The cache shows that another device has the short name.
func TestOutdatedShortName(t *testing.T) {
	api, x := newInstances(), seen("b", "x", true)
	first, second := newReplica(api), newReplica(api)
	first.reports["a"] = []merge.Device{seen("a", "id", true)}
	first.reconcile(t)
	second.sync()
	first.reports["a"] = []merge.Device{seen("a", "x", true)}
	first.reconcile(t) // deletes the Instance
	first.reconcile(t)
	second.reports["b"] = []merge.Device{x}
	second.reconcile(t)
	require.Equal(t, map[string][]string{"x": {name}}, api.names())
	require.Equal(t, []string{"a", "b"}, api.byName[name].Spec.Nodes)
}

func TestRefusedCollisions(t *testing.T) {
	long := cam.DeepCopy()
	long.Name = strings.Repeat("c", 51)
	r := newReplica(newInstances())
	r.reports["a"], r.reports["b"] = []merge.Device{seen("a", "id", true)}, []merge.Device{seen("b", "x", true)}
	_, refusals, err := r.run(t, r.group(long))
	require.NoError(t, err)
	require.Equal(t, []string{name, name}, r.edited)
	require.Len(t, refusals, 1)
	require.Equal(t, akriv0.ReasonDigestCollision, refusals[0].Reason)
	require.Equal(t, `device id "x": another device has the name cam-abc123, and `+
		akriv0.InstanceName(long.Name, akriv0.LongDigest("x", "", true))+
		` is longer than 63 characters; use a Configuration whose name has at most 49 characters`, refusals[0].Message)

	// Two device ids with the same long digest: the Instance is already that of another id.
	x := seen("b", "x", true)
	r = newReplica(newInstances())
	r.reports["a"] = []merge.Device{seen("a", "id", true), x}
	r.reconcile(t)
	r.api.byName[longName(x)].Annotations[akriv0.DeviceIDAnnotation] = "y"
	r.sync()
	refusals = r.reconcile(t)
	require.Len(t, refusals, 1)
	require.Equal(t, `device id "x": another device has the same digest and the name `+longName(x)+
		`; discover one of the devices with another Configuration`, refusals[0].Message)
}

// An error of one Instance does not affect the others, and is returned.
func TestErrorOfOneInstance(t *testing.T) {
	r := newReplica(newInstances())
	for _, suffix := range []string{"000000", "111111"} {
		_, err := r.api.write(t, name+suffix, nil, &akriv0.Instance{
			ObjectMeta: metav1.ObjectMeta{Name: name + suffix}, Spec: akriv0.InstanceSpec{ConfigurationName: cam.Name},
		})
		require.NoError(t, err)
	}
	r.sync()
	failed := errors.New("timeout")
	r.failing = map[string]error{name + "000000": failed}
	_, _, err := r.run(t, r.group(cam))
	require.ErrorIs(t, err, failed)
	require.Equal(t, []string{name, name + "000000", name + "111111"}, r.edited)
	require.Equal(t, []string{name + "000000"}, slices.Collect(maps.Keys(r.api.byName)))
}

// The devices of an Instance that the API server refuses are refused, and stay new input.
func TestRefusedByAPIServer(t *testing.T) {
	for title, c := range map[string]struct {
		err    error
		reason string
		retry  bool
	}{
		"too large": {apierrors.NewRequestEntityTooLargeError("etcd"), akriv0.ReasonInvalidDevice, false},
		"quota":     {apierrors.NewForbidden(akriv0.InstanceResource.GroupResource(), name, errors.New("quota")), reasonNotPermitted, true},
	} {
		t.Run(title, func(t *testing.T) {
			r := newReplica(newInstances())
			one, two := seen("a", "one", true), seen("b", "two", true)
			r.reports["a"], r.reports["b"] = []merge.Device{one}, []merge.Device{two}
			r.failing = map[string]error{name: c.err}
			run, refusals, err := r.run(t, r.group(cam))
			require.NoError(t, err)
			require.Equal(t, []merge.Refusal{{Device: one, Reason: c.reason, Message: refusals[0].Message}}, refusals)
			require.Equal(t, map[string][]string{"two": {longName(two)}}, r.api.names(), "other devices are not affected")
			require.True(t, run.refused)
			require.Equal(t, c.retry, run.requeueAfter > 0)
		})
	}
}

var nodes = []string{"a", "b", "c"}

// model has two replicas and the devices of all nodes.
type model struct {
	*rapid.T
	api      *instances
	replicas []*replica
	devices  map[string][]merge.Device // by node
	fresh    bool                      // caches do not lag
}

// report changes the devices of a node, and sends them to one of the replicas.
func (m *model) report() {
	node := rapid.SampledFrom(nodes).Draw(m.T, "node")
	m.devices[node] = nil
	for _, id := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"s1", "s2", "s3", "l1", "l2"}), rapid.ID).Draw(m.T, "ids") {
		m.devices[node] = append(m.devices[node], seen(node, id, id[0] == 's'))
	}
	m.send(node)
}

func (m *model) send(node string) {
	for _, r := range m.replicas {
		delete(r.reports, node)
	}
	m.replica().reports[node] = m.devices[node]
}

func (m *model) replica() *replica { return rapid.SampledFrom(m.replicas).Draw(m.T, "replica") }

// restart replaces a replica by one with an empty cache. Its nodes do not report yet.
func (m *model) restart() {
	i := rapid.IntRange(0, 1).Draw(m.T, "replica")
	m.replicas[i] = newReplica(m.api)
	m.replicas[i].sync()
}

func (m *model) reconcile() {
	r := m.replica()
	if m.fresh {
		r.sync()
	} else {
		r.beforeEdit = func() {
			if rapid.Bool().Draw(m.T, "interrupted") {
				rapid.SampledFrom([]func(){m.report, m.sync, func() { m.other(r).reconcile(m.T) }}).Draw(m.T, "interruption")()
			}
		}
	}
	before := m.api.names()
	r.reconcile(m.T)
	r.beforeEdit = nil
	if m.fresh {
		m.requireSameNames(before)
	}
}

func (m *model) other(r *replica) *replica {
	return m.replicas[slices.IndexFunc(m.replicas, func(other *replica) bool { return other != r })]
}

func (m *model) sync() { m.replica().sync() }

// requireSameNames requires that no device has another name than before.
func (m *model) requireSameNames(before map[string][]string) {
	for device, names := range m.api.names() {
		if before[device] != nil {
			require.Equal(m.T, before[device], names, device)
		}
	}
}

// settle makes all nodes report and reconciles until nothing changes.
func (m *model) settle() {
	for _, node := range nodes {
		m.send(node)
	}
	for before := -1; before != m.api.version+len(m.api.byName); {
		before = m.api.version + len(m.api.byName)
		for _, r := range m.replicas {
			r.sync()
			require.Empty(m.T, r.reconcile(m.T))
		}
		require.Less(m.T, m.api.version, 10_000, "the replicas do not agree")
	}
}

// requireInstances requires that each device has one Instance, with all nodes that see the device.
func (m *model) requireInstances() {
	want, got := map[string][]string{}, map[string][]string{}
	for _, node := range nodes {
		for _, device := range m.devices[node] {
			key := device.ID
			if !device.Shared {
				key += " on " + node
			}
			want[key] = append(want[key], node)
		}
	}
	for device, names := range m.api.names() {
		require.Len(m.T, names, 1, device)
		got[device] = m.api.byName[names[0]].Spec.Nodes
	}
	require.Equal(m.T, want, got)
}

// Replicas that lag, restart and write at the same time give each device one Instance. No Instance
// becomes that of another device.
func TestModelOfCollisions(t *testing.T) {
	// Runs pause after conflicts. A bubble of synctest has no deadline, which rapid would look for.
	synctest.Test(t, func(t *testing.T) { rapid.Check(struct{ rapid.TB }{t}, checkModel) })
}

func checkModel(t *rapid.T) {
	api := newInstances()
	m := &model{
		T: t, api: api, replicas: []*replica{newReplica(api), newReplica(api)},
		devices: map[string][]merge.Device{}, fresh: rapid.Bool().Draw(t, "fresh"),
	}
	t.Repeat(map[string]func(*rapid.T){
		"report":    func(*rapid.T) { m.report() },
		"reconcile": func(*rapid.T) { m.reconcile() },
		"sync":      func(*rapid.T) { m.sync() },
		"restart":   func(*rapid.T) { m.restart() },
	})
	m.settle()
	m.requireInstances()
}
