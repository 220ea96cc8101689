package slots_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/slots"
)

func instance(capacity int32, usage map[string]string, nodes ...string) *akriv0.Instance {
	return &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: "cam-abc123"},
		Spec:       akriv0.InstanceSpec{ConfigurationName: "cam", Capacity: capacity, DeviceUsage: usage, Nodes: nodes},
	}
}

func TestReserve(t *testing.T) {
	virtual := akriv0.SlotHolder{Node: "a", VirtualID: "3", Configuration: true}
	upstream := akriv0.SlotHolder{Node: "a", VirtualID: "cam-3", Configuration: true}
	claim := akriv0.SlotHolder{Node: "a", Claim: "uid"}
	for name, c := range map[string]struct {
		value  string
		index  int
		holder akriv0.SlotHolder
		want   slots.Reason
		stored string
	}{
		"a free slot is reserved":                       {"", 0, akriv0.SlotHolder{Node: "a"}, "", "a"},
		"a free slot is reserved by a virtual id":       {"", 0, virtual, "", "C:3:a"},
		"an own slot is reserved again":                 {"a", 0, akriv0.SlotHolder{Node: "a"}, "", "a"},
		"an own slot in upstream Akri's form":           {"C:cam-3:a", 0, upstream, "", "C:cam-3:a"},
		"the number of an id in upstream Akri's form":   {"C:cam-3:a", 0, virtual, slots.Held, "C:cam-3:a"},
		"a slot of another node":                        {"b", 0, akriv0.SlotHolder{Node: "a"}, slots.Held, "b"},
		"a slot of the node through the other resource": {"C:1:a", 0, akriv0.SlotHolder{Node: "a"}, slots.Held, "C:1:a"},
		"a free slot is reserved for a claim":           {"", 0, claim, "", "D:uid:a"},
		"a slot of the claim is reserved again":         {"D:uid:a", 0, claim, "", "D:uid:a"},
		"a slot of another claim":                       {"D:other:a", 0, claim, slots.Held, "D:other:a"},
		"a slot of a claim of the node":                 {"D:uid:a", 0, akriv0.SlotHolder{Node: "a"}, slots.Held, "D:uid:a"},
		"a malformed value":                             {"C:::", 0, akriv0.SlotHolder{Node: "a"}, slots.Malformed, "C:::"},
		"a node that the Instance does not list":        {"", 0, akriv0.SlotHolder{Node: "z"}, slots.NodeNotListed, ""},
		"an index at the capacity":                      {"", 2, akriv0.SlotHolder{Node: "a"}, slots.OutOfRange, ""},
		"an own slot above a lowered capacity":          {"a", 2, akriv0.SlotHolder{Node: "a"}, "", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			key := akriv0.SlotName("cam-abc123", c.index)
			i := instance(2, map[string]string{key: c.value}, "a", "b")
			err := slots.Reserve(i, c.index, c.holder)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				var refusal *slots.Refusal
				require.ErrorAs(t, err, &refusal)
				require.Equal(t, c.want, refusal.Reason)
				require.Equal(t, key, refusal.Slot)
			}
			require.Equal(t, c.stored, i.Spec.DeviceUsage[key])
		})
	}
}

func TestFit(t *testing.T) {
	i := instance(2, map[string]string{
		"cam-abc123-1": "gone", "cam-abc123-2": "a", "cam-abc123-3": "", "cam-abc123-4": "x:y", "cam-abc123-5": "C:0:gone", "other-1": "q",
	}, "a")
	slots.Fit(i, unlisted(i))
	require.Equal(t, map[string]string{
		"cam-abc123-0": "", "cam-abc123-1": "", "cam-abc123-2": "a", "cam-abc123-4": "x:y", "other-1": "q",
	}, i.Spec.DeviceUsage)
	require.Equal(t, []slots.Slot{
		{Index: 0}, {Index: 1}, {Index: 2, Holder: akriv0.SlotHolder{Node: "a"}}, {Index: 4, Malformed: "x:y"},
	}, slots.List(i))
	slots.SetStatus(i)
	require.Equal(t, akriv0.InstanceStatus{SlotsUsed: 2, SlotsFree: 2}, i.Status)
	slots.Release(i, 2, akriv0.SlotHolder{Node: "a"})
	require.NotContains(t, i.Spec.DeviceUsage, "cam-abc123-2")
}

// The kubelet has the device of a Pod that upstream Akri served under upstream's id.
func TestVirtualIDsAreThoseOfTheKubelet(t *testing.T) {
	i := instance(2, map[string]string{"cam-abc123-0": "C:cam-3:a", "cam-abc123-1": "C:3:a"}, "a")
	require.Equal(t, []slots.Slot{
		{Index: 0, Holder: akriv0.SlotHolder{Node: "a", VirtualID: "cam-3", Configuration: true}},
		{Index: 1, Holder: akriv0.SlotHolder{Node: "a", VirtualID: "3", Configuration: true}},
	}, slots.List(i))
	slots.Release(i, 0, akriv0.SlotHolder{Node: "a", VirtualID: "cam-3", Configuration: true})
	require.Equal(t, map[string]string{"cam-abc123-0": "", "cam-abc123-1": "C:3:a"}, i.Spec.DeviceUsage)
}

var (
	nodes   = []string{"a", "b", "c"}
	holders = rapid.Custom(func(t *rapid.T) akriv0.SlotHolder {
		h := akriv0.SlotHolder{Node: rapid.SampledFrom(nodes).Draw(t, "node")}
		id := strconv.Itoa(rapid.IntRange(0, 3).Draw(t, "id"))
		switch rapid.SampledFrom([]string{"node", "virtual", "claim"}).Draw(t, "form") {
		case "virtual":
			h.Configuration, h.VirtualID = true, id
		case "claim":
			h.Claim = id
		}
		return h
	})
	values = rapid.OneOf(rapid.SampledFrom([]string{"", "a", "b", "gone", "C:1:a", "C:cam-2:b", "C:bad", "D:1:a", "D:2:gone", "x:y"}), rapid.String())
)

// drawInstance draws an Instance with any deviceUsage, including slots above a lowered capacity.
func drawInstance(t *rapid.T) *akriv0.Instance {
	usage := rapid.MapOf(rapid.Custom(func(t *rapid.T) string {
		return akriv0.SlotName("cam-abc123", rapid.IntRange(0, 6).Draw(t, "index"))
	}), values).Draw(t, "usage")
	return instance(rapid.Int32Range(0, 5).Draw(t, "capacity"), usage, "a", "b")
}

// A call changes at most its own slot, and repeating it changes nothing.
func TestCallsAreIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := drawInstance(t)
		before := maps.Clone(i.Spec.DeviceUsage)
		index, holder := rapid.IntRange(-1, 7).Draw(t, "at"), holders.Draw(t, "holder")
		call := func() { _ = slots.Reserve(i, index, holder) }
		if rapid.Bool().Draw(t, "release") {
			call = func() { slots.Release(i, index, holder) }
		}
		call()
		after := maps.Clone(i.Spec.DeviceUsage)
		key := akriv0.SlotName("cam-abc123", index)
		if held := before[key]; held != "" && held != after[key] {
			require.Equal(t, holder.String(), held, "only the holder may release the slot")
		}
		delete(before, key)
		delete(after, key)
		require.Equal(t, len(before), len(after))
		for k, v := range before {
			require.Equal(t, v, after[k])
		}
		once := maps.Clone(i.Spec.DeviceUsage)
		call()
		require.True(t, maps.Equal(once, i.Spec.DeviceUsage))
	})
}

func TestNeverMoreHoldersThanCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := instance(rapid.Int32Range(0, 4).Draw(t, "capacity"), nil, nodes...)
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			index, holder := rapid.IntRange(0, 5).Draw(t, "at"), holders.Draw(t, "holder")
			if rapid.Bool().Draw(t, "release") {
				slots.Release(i, index, holder)
			} else if slots.Reserve(i, index, holder) == nil {
				require.Contains(t, slots.List(i), slots.Slot{Index: index, Holder: holder})
			}
			held := 0
			for _, slot := range slots.List(i) {
				if !slot.Free() {
					held++
				}
			}
			require.LessOrEqual(t, held, int(i.Spec.Capacity))
		}
	})
}

func TestFitKeepsMalformedValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := drawInstance(t)
		before := slots.List(i)
		slots.Fit(i, unlisted(i))
		once := maps.Clone(i.Spec.DeviceUsage)
		for _, slot := range before {
			if slot.Malformed != "" || slot.Holder.Node == "a" || slot.Holder.Node == "b" {
				require.Contains(t, slots.List(i), slot)
			}
		}
		slots.Fit(i, unlisted(i))
		require.Equal(t, once, i.Spec.DeviceUsage)
	})
}

func FuzzListReadsAnyUsage(f *testing.F) {
	f.Add("cam-abc123-0", "C:1:node")
	f.Add("cam-abc123-00", "::")
	f.Fuzz(func(t *testing.T, key, value string) {
		i := instance(1, map[string]string{key: value}, "node")
		slots.Fit(i, unlisted(i))
		require.GreaterOrEqual(t, len(slots.List(i)), 1)
	})
}

func unlisted(i *akriv0.Instance) func(string) bool {
	return func(node string) bool { return !slices.Contains(i.Spec.Nodes, node) }
}
