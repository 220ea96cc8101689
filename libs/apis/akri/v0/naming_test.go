package v0_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

func TestDigestMatchesUpstreamAkri(t *testing.T) {
	for _, c := range []struct {
		id, node string
		shared   bool
		want     string
	}{
		{"my_local_device", "my_node", false, "e77db4"},
		{"my_local_device", "my_other_node", false, "099763"},
		{"my_shared_device", "any", true, "4294ea"},
		{"foo0", "", true, "8120fe"},
		{"foo1", "", true, "a19705"},
		{"foo1", "node-a", false, "d2981e"},
		{"/dev/video0", "node-a", false, "9caa2f"},
		{"/devices/virtual/mem/null", "node-a", false, "2a91a0"},
		{"opc.tcp://localhost:4840/", "", true, "f574bb"},
		{"http://10.0.0.1/onvif/device_service-3fa1fe68-b915-4053-a3e1-ac15a21f5f91", "", true, "c55975"},
		{"", "", true, "cec7ea"},
	} {
		require.Equal(t, c.want, akriv0.Digest(c.id, c.node, c.shared), "id %q on node %q", c.id, c.node)
	}
}

// The long digest never changes: Instances that exist have it in their names.
func TestLongDigest(t *testing.T) {
	for _, c := range []struct {
		id, node string
		shared   bool
		want     string
	}{
		{"foo0", "", true, "8120fex55e2ca"},
		{"foo1", "node-a", false, "d2981ex3eac53"},
		{"", "", true, "cec7eax0767f9"},
	} {
		require.Equal(t, c.want, akriv0.LongDigest(c.id, c.node, c.shared))
	}
}

func TestShortInstanceName(t *testing.T) {
	for name, want := range map[string]string{
		"camera-8120fe":               "camera-8120fe",
		"camera-8120fex012345":        "camera-8120fe",
		"camera-8120fe012345":         "camera-8120fe012345",
		"camera-8120fex01234":         "camera-8120fex01234",
		"camera-8120fex01234x":        "camera-8120fex01234x",
		"camera-8120fex012345-a19705": "camera-8120fex012345-a19705",
		"camera":                      "camera",
	} {
		require.Equal(t, want, akriv0.ShortInstanceName(name), name)
	}
}

func TestInstanceNames(t *testing.T) {
	require.Equal(t, "akri-debug-echo-8120fe", akriv0.InstanceName("akri-debug-echo", "8120fe"))
	require.Equal(t, "a-b-c-8120fe", akriv0.InstanceName("a.b/c", "8120fe"))
	require.Equal(t, "8120fe", akriv0.InstanceDigest("akri-debug-echo-8120fe"))
	require.Equal(t, "akri.sh/akri-onvif=8120fe", akriv0.CDIName("akri-onvif", "8120fe"))
}

func TestNamesConflict(t *testing.T) {
	for name, c := range map[string]struct {
		a, b string
		want bool
	}{
		"same name":       {"debug-echo", "debug-echo", true},
		"a dot":           {"debug.echo", "debug-echo", true},
		"an Instance":     {"debug-echo-8120fe", "debug-echo", true},
		"of a dot":        {"debug-echo-8120fe", "debug.echo", true},
		"two Instances":   {"debug-echo-8120fe", "debug-echo-a19705", false},
		"another prefix":  {"debug-echo-8120fe", "debug", false},
		"no hexadecimals": {"debug-echo-camera", "debug-echo", false},
		"short":           {"echo", "", false},
		"a long digest":   {"debug-echo-8120fex012345", "debug-echo", true},
		"a MAC address":   {"debug-echo-8120fe012345", "debug-echo", false},
		"a date":          {"debug-echo-20260101", "debug-echo", false},
	} {
		require.Equal(t, c.want, namesConflict(c.a, c.b), name)
		require.Equal(t, c.want, namesConflict(c.b, c.a), name)
	}
}

func TestSlotHolderRoundTrip(t *testing.T) {
	for value, want := range map[string]akriv0.SlotHolder{
		"":                      {},
		"node-a":                {Node: "node-a"},
		"C:0:node-b":            {Node: "node-b", VirtualID: "0", Configuration: true},
		"C:akri-onvif-3:node.b": {Node: "node.b", VirtualID: "akri-onvif-3", Configuration: true},
		"D:1b4e28ba-2fa1:node":  {Node: "node", Claim: "1b4e28ba-2fa1"},
	} {
		got, err := akriv0.ParseSlotHolder(value)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, value, got.String())
	}
}

func TestParseSlotHolderRejectsMalformed(t *testing.T) {
	for _, value := range []string{"C:node-a", "C::node-a", "C:0:", "C:", "a:b", "C:0:a:b", ":", "D:node-a", "D::node-a", "D:uid:", "E:uid:node-a"} {
		_, err := akriv0.ParseSlotHolder(value)
		require.ErrorContains(t, err, "is malformed", "value %q", value)
	}
}

func TestSlotIndex(t *testing.T) {
	index, err := akriv0.SlotIndex("akri-x-8120fe", "akri-x-8120fe-12")
	require.NoError(t, err)
	require.Equal(t, 12, index)
	for _, slot := range []string{"akri-x-8120fe", "akri-x-8120fe-", "akri-x-8120fe--1", "akri-x-8120fe-01", "other-1", "akri-x-8120fe-99999999999"} {
		_, err := akriv0.SlotIndex("akri-x-8120fe", slot)
		require.Error(t, err, "slot %q", slot)
	}
}

func FuzzParseSlotHolder(f *testing.F) {
	for _, seed := range []string{"", "node-a", "C:0:node-b", "C:node-a", "C::", "D:uid:node-b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if holder, err := akriv0.ParseSlotHolder(value); err == nil {
			require.Equal(t, value, holder.String())
		}
	})
}

// namesConflict reports whether two Configurations with these names can have the same extended
// resource: their Instances have the same names, or one is named like an Instance of the other.
func namesConflict(a, b string) bool {
	return akriv0.InstanceName(a, "") == akriv0.InstanceName(b, "") || namedLikeInstance(a, b) || namedLikeInstance(b, a)
}

// namedLikeInstance reports whether a Configuration can have the same name, and so the same
// extended resource, as an Instance of another Configuration.
func namedLikeInstance(name, other string) bool {
	return akriv0.InstancePrefix(name) == akriv0.InstanceName(other, "")
}
