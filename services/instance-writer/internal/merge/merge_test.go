package merge_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/merge"
	"akri.sh/services/instance-writer/internal/slots"
)

const name = "cam-abc123"

func configuration(capacity int32) *akriv0.Configuration {
	return &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: "cam", Namespace: "ns", UID: "uid"},
		Spec:       akriv0.ConfigurationSpec{Capacity: &capacity},
	}
}

func seen(node, id string, shared bool) merge.Device {
	return merge.Device{Node: node, ID: id, Shared: shared, Complete: true, Properties: merge.NewProperties(map[string]string{"FROM": node})}
}

// among returns a function that returns whether a node is one of the nodes.
func among(nodes ...string) func(string) bool {
	return func(node string) bool { return slices.Contains(nodes, node) }
}

func instance(shared bool, id string, nodes ...string) *akriv0.Instance {
	in := merge.Input{Name: name, Configuration: configuration(2)}
	for _, node := range nodes {
		in.Seen = append(in.Seen, seen(node, id, true))
	}
	i := merge.Desired(in).Instance
	i.Spec.Shared = shared
	return i
}

func TestNewInstanceMatchesUpstreamAkri(t *testing.T) {
	got := merge.Desired(merge.Input{Name: name, Configuration: configuration(2), Seen: []merge.Device{seen("b", "id", true), seen("a", "id", true)}})
	yes := true
	require.Empty(t, got.Others)
	require.Equal(t, &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", Annotations: map[string]string{"akri.sh/device-id": "id", "akri.sh/differing-nodes": "b"},
			Labels: map[string]string{"akri.sh/configuration": "cam"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "akri.sh/v0", Kind: "Configuration", Name: "cam", UID: "uid", Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: akriv0.InstanceSpec{
			ConfigurationName: "cam", CDIName: "akri.sh/cam=abc123", Capacity: 2, Shared: true, Nodes: []string{"a", "b"},
			BrokerProperties: map[string]string{"FROM": "a"},
			DeviceUsage:      map[string]string{"cam-abc123-0": "", "cam-abc123-1": ""},
		},
	}, got.Instance)
}

func TestConfigurationLabel(t *testing.T) {
	current := instance(true, "id", "a")
	current.Labels = map[string]string{"room": "lab"}
	got := merge.Desired(merge.Input{Name: name, Configuration: configuration(2), Current: current}).Instance
	require.Equal(t, map[string]string{"room": "lab", "akri.sh/configuration": "cam"}, got.Labels)
	require.Equal(t, map[string]string{"room": "lab"}, current.Labels)

	long := configuration(2)
	long.Name = strings.Repeat("c", 64)
	got = merge.Desired(merge.Input{Name: long.Name + "-abc123", Configuration: long, Seen: []merge.Device{seen("a", "id", true)}}).Instance
	require.Empty(t, got.Labels, "a label value has at most 63 characters")
}

func TestMembership(t *testing.T) {
	for title, c := range map[string]struct {
		in   merge.Input
		want []string
	}{
		"no report changes nothing":                    {merge.Input{}, []string{"a", "b"}},
		"a complete report without the device removes": {merge.Input{Absent: among("a")}, []string{"b"}},
		"an unavailable node is removed":               {merge.Input{Unavailable: map[string]bool{"b": true}}, []string{"a"}},
		"an unavailable node is not added":             {merge.Input{Seen: []merge.Device{seen("c", "id", true)}, Unavailable: map[string]bool{"c": true}}, []string{"a", "b"}},
		"a node that is not ready is not added": {
			merge.Input{Seen: []merge.Device{seen("c", "id", true)}, NotReady: map[string]bool{"c": true}}, []string{"a", "b"},
		},
		"a node that is not ready stays": {
			merge.Input{Seen: []merge.Device{seen("b", "id", true)}, NotReady: map[string]bool{"a": true, "b": true}}, []string{"a", "b"},
		},
		"a node that sees the device is added":   {merge.Input{Seen: []merge.Device{seen("c", "id", true)}}, []string{"a", "b", "c"}},
		"the last node removes the Instance":     {merge.Input{Absent: among("a", "b")}, nil},
		"a device with a collision does not add": {merge.Input{Seen: []merge.Device{seen("c", "other", true)}}, []string{"a", "b"}},
	} {
		t.Run(title, func(t *testing.T) {
			c.in.Name, c.in.Configuration, c.in.Current = name, configuration(2), instance(true, "id", "a", "b")
			got := merge.Desired(c.in).Instance
			if c.want == nil {
				require.Nil(t, got)
				return
			}
			require.Equal(t, c.want, got.Spec.Nodes)
		})
	}
}

func TestRemovedNodeLosesItsSlots(t *testing.T) {
	current := instance(true, "id", "a", "b")
	current.Spec.DeviceUsage = map[string]string{name + "-0": "a", name + "-1": "C:0:b"}
	got := merge.Desired(merge.Input{Name: name, Configuration: configuration(2), Current: current, Absent: among("a")})
	require.Equal(t, map[string]string{name + "-0": "", name + "-1": "C:0:b"}, got.Instance.Spec.DeviceUsage)
}

// A Configuration that was deleted and created again keeps only the slots in use.
func TestRecreatedConfiguration(t *testing.T) {
	recreated := configuration(2)
	recreated.UID = "another"
	current := instance(true, "id", "a", "b")
	current.Spec.DeviceUsage = map[string]string{name + "-0": "a", name + "-1": ""}
	in := merge.Input{Name: name, Configuration: recreated, Current: current, Seen: []merge.Device{seen("b", "id", true)}}
	got := merge.Desired(in).Instance
	require.Equal(t, []string{"b"}, got.Spec.Nodes, "node a has not reported for the new Configuration")
	require.Equal(t, map[string]string{name + "-0": "a", name + "-1": ""}, got.Spec.DeviceUsage, "a Pod on node a may be using the slot")
	in.Current, in.Absent = got, among("a")
	require.Empty(t, merge.Desired(in).Instance.Spec.DeviceUsage[name+"-0"])
	in.Current, in.Seen, in.Absent = current, nil, nil
	require.Nil(t, merge.Desired(in).Instance, "no node sees the device")
}

func TestLoweredCapacityKeepsHeldSlots(t *testing.T) {
	current := instance(true, "id", "a")
	current.Spec.DeviceUsage[name+"-1"] = "a"
	got := merge.Desired(merge.Input{Name: name, Configuration: configuration(1), Current: current})
	require.EqualValues(t, 1, got.Instance.Spec.Capacity)
	require.Equal(t, map[string]string{name + "-0": "", name + "-1": "a"}, got.Instance.Spec.DeviceUsage)
}

// An Instance stays that of its device if another device has the same name.
func TestOtherDevices(t *testing.T) {
	for title, c := range map[string]struct {
		current *akriv0.Instance
		other   merge.Device
	}{
		"another id":                     {instance(true, "id", "a"), seen("b", "x", true)},
		"a local device of another node": {instance(false, "id", "a"), seen("b", "id", false)},
	} {
		t.Run(title, func(t *testing.T) {
			got := merge.Desired(merge.Input{Name: name, Configuration: configuration(2), Current: c.current, Seen: []merge.Device{c.other}})
			require.Equal(t, merge.Outcome{Instance: c.current, Others: []merge.Device{c.other}}, got)
		})
	}
}

func TestInstanceOfAnotherConfiguration(t *testing.T) {
	other := configuration(1)
	other.Name = "c.am"
	current := instance(true, "id", "a")
	got := merge.Desired(merge.Input{Name: name, Configuration: other, Current: current, Seen: []merge.Device{seen("b", "id", true)}})
	require.Equal(t, current, got.Instance)
	require.Len(t, got.Refusals, 1)
	require.Equal(t, akriv0.ReasonDigestCollision, got.Refusals[0].Reason)
	require.Equal(t, `Instance "cam-abc123" belongs to Configuration "cam"; rename one of the Configurations`, got.Refusals[0].Message)
}

func TestUpstreamInstanceIsAdopted(t *testing.T) {
	current := &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", Finalizers: []string{"a", "example.com/backup"}},
		Spec: akriv0.InstanceSpec{ConfigurationName: "cam", Nodes: []string{"a"}, Shared: true,
			DeviceUsage: map[string]string{name + "-1": "C:cam-0:a"}, BrokerProperties: map[string]string{"K": "v"}},
	}
	got := merge.Desired(merge.Input{Name: name, Configuration: configuration(2), Current: current, Seen: []merge.Device{seen("b", "id", true)}}).Instance
	require.Equal(t, []string{"example.com/backup"}, got.Finalizers, "only those of upstream Akri's agents are removed")
	require.Equal(t, "id", got.Annotations[akriv0.DeviceIDAnnotation])
	require.Equal(t, []string{"a", "b"}, got.Spec.Nodes)
	require.Equal(t, map[string]string{"K": "v"}, got.Spec.BrokerProperties)
	require.Equal(t, map[string]string{name + "-0": "", name + "-1": "C:cam-0:a"}, got.Spec.DeviceUsage)
}

// A deleted Configuration deletes its Instances. A terminating Instance only loses the finalizers
// of upstream Akri's agents.
func TestDeletion(t *testing.T) {
	current := instance(true, "id", "a")
	require.Nil(t, merge.Desired(merge.Input{Name: name, Current: current}).Instance)
	now := metav1.Now()
	current.DeletionTimestamp, current.Finalizers = &now, []string{"a"}
	got := merge.Desired(merge.Input{Name: name, Configuration: configuration(1), Current: current, Absent: among("a")}).Instance
	require.Empty(t, got.Finalizers)
	require.Equal(t, current.Spec, got.Spec)
}

// drawInput draws reports of five nodes on a shared device; some of the nodes are unavailable.
func drawInput(t *rapid.T) merge.Input {
	in := merge.Input{Name: name, Configuration: configuration(rapid.Int32Range(1, 4).Draw(t, "capacity")), Unavailable: map[string]bool{}}
	var absent []string
	for _, node := range []string{"a", "b", "c", "d", "e"} {
		switch rapid.IntRange(0, 3).Draw(t, node) {
		case 0:
			in.Seen = append(in.Seen, seen(node, "id", true))
		case 1:
			absent = append(absent, node)
		case 2:
			in.Unavailable[node] = true
		}
	}
	in.Absent = among(absent...)
	if rapid.Bool().Draw(t, "exists") {
		in.Current = instance(true, "id", rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 5, rapid.ID).Draw(t, "nodes")...)
		for i := range 4 {
			in.Current.Spec.DeviceUsage[akriv0.SlotName(name, i)] = rapid.SampledFrom([]string{"", "a", "C:1:b", "e", "z", "C:"}).Draw(t, "slot")
		}
	}
	return in
}

func TestDesiredIsIdempotentAndPure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		before := in.Current.DeepCopy()
		once := merge.Desired(in).Instance
		require.Equal(t, before, in.Current)
		in.Current = once
		require.Equal(t, once, merge.Desired(in).Instance)
	})
}

// Replicas with different reports agree, in any order of their writes.
func TestReplicasAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := drawInput(t)
		if whole.Current != nil {
			listed := whole.Current.Spec.Nodes
			// Only a listed node can hold a slot.
			slots.Fit(whole.Current, func(node string) bool { return !slices.Contains(listed, node) })
		}
		want := merge.Desired(whole).Instance
		replicas := split(t, whole)
		current := whole.Current
		deleted := false // an Instance that was created again has lost its malformed values
		for range 3 {    // replicas reconcile again after each change
			for _, i := range rapid.Permutation([]int{0, 1}).Draw(t, "order") {
				replicas[i].Current = current
				current = merge.Desired(replicas[i]).Instance
				deleted = deleted || current == nil
			}
		}
		if want == nil || current == nil {
			require.Equal(t, want == nil, current == nil)
			return
		}
		require.Equal(t, want.Spec.Nodes, current.Spec.Nodes)
		if !deleted {
			require.Equal(t, slots.List(want), slots.List(current))
		}
		for i := range replicas {
			replicas[i].Current = current
			require.Equal(t, current, merge.Desired(replicas[i]).Instance, "no replica changes the properties again")
		}
	})
}

// split distributes the reports to two replicas, which see the same API server.
func split(t *rapid.T, whole merge.Input) []merge.Input {
	replicas := []merge.Input{whole, whole}
	for i := range replicas {
		replicas[i].Seen, replicas[i].Absent = nil, nil
	}
	for _, device := range whole.Seen {
		r := &replicas[rapid.IntRange(0, 1).Draw(t, "holder")]
		r.Seen = append(r.Seen, device)
	}
	holders := map[string]int{}
	for _, node := range []string{"a", "b", "c", "d", "e"} {
		holders[node] = rapid.IntRange(0, 1).Draw(t, "holder")
	}
	for i := range replicas {
		replicas[i].Absent = func(node string) bool { return holders[node] == i && whole.Absent(node) }
	}
	return replicas
}
