package soak

import (
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

func TestModel(t *testing.T) {
	m := newModel([]string{"node-a", "node-b"})
	require.Empty(t, m.instances(), "no Configuration exists")
	names := map[string]bool{}
	for _, c := range m.configurations {
		c.exists = true
		for name, e := range c.instances(m.nodes) {
			require.False(t, names[name], "two devices have the digest of %s", name)
			names[name] = true
			require.True(t, m.wants(name))
			slots := int(e.capacity)
			if c.broker == podBroker {
				slots -= c.brokers(e)
			}
			require.GreaterOrEqual(t, slots, 0)
		}
	}
	require.Len(t, m.instances(), len(names))
	local := akriv0.InstanceName("soak-local", akriv0.Digest("local-0", "node-b", false))
	require.Equal(t, []string{"node-b"}, m.instances()[local].nodes)
	require.Equal(t, map[string]string{nameProperty: "soak-local", versionProperty: "0", localProperty: "0"}, m.instances()[local].properties)
}

func TestRunningWorkloads(t *testing.T) {
	m := newModel([]string{"node-a", "node-b"})
	byName := map[string]*configuration{}
	for _, c := range m.configurations {
		byName[c.name] = c
	}
	require.Equal(t, 2, byName["soak-pods"].running(m.nodes))
	require.Equal(t, 4, byName["soak-crowd"].running(m.nodes), "as many as there are slots")
	delete(byName["soak-pods"].present, place{device: "pods-0"})
	require.Equal(t, 1, byName["soak-pods"].running(m.nodes), "the device of a workload does not exist")
	delete(byName["soak-crowd"].present, place{device: "crowd-0"})
	require.Equal(t, 2, byName["soak-crowd"].running(m.nodes))
}
