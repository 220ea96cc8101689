package simulation

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
)

func stored(nodes []string, property, holder string) *akriv0.Instance {
	instance := &akriv0.Instance{}
	instance.Name = "cameras-1"
	instance.Spec.Nodes = nodes
	instance.Spec.BrokerProperties = map[string]string{"P": property}
	instance.Spec.DeviceUsage = map[string]string{"cameras-1-0": holder}
	return instance
}

func device(instance, property string, shared bool) *discoveryv1.Device {
	return &discoveryv1.Device{Instance: instance, Shared: shared, Properties: map[string]string{"P": property}}
}

func TestModelComparesInstances(t *testing.T) {
	m := NewModel()
	m.set("a", device("cameras-1", "1", true))
	m.set("b", device("cameras-1", "2", true))
	m.Hold("cameras-1", "cameras-1-0", "a")
	both := []string{"a", "b"}
	for title, instance := range map[string]*akriv0.Instance{
		"does not exist":   nil,
		"lacks a node":     stored([]string{"a"}, "1", "a"),
		"has another node": stored([]string{"a", "c"}, "1", "a"),
		"other properties": stored(both, "2", "a"),
		"slot is lost":     stored(both, "1", ""),
		"other holder":     stored(both, "1", "b"),
	} {
		m.observe("cameras-1", instance)
		require.False(t, m.Matches("cameras-1"), title)
	}
	m.observe("cameras-1", stored(both, "1", "a"))
	require.True(t, m.Matches("cameras-1"))
	m.observe("cameras-2", stored(both, "1", ""))
	require.Equal(t, 1, m.Differing(), "an Instance of no device")
}

func TestModelReportsWrongDeletions(t *testing.T) {
	m := NewModel()
	m.set("a", device("cameras-1", "1", true))
	m.observe("cameras-1", stored([]string{"a"}, "1", ""))
	m.RemoveNode("a")
	m.observe("cameras-1", nil)
	_, err := m.Await(t.Context())
	require.NoError(t, err)
	require.Empty(t, m.Deleted())

	m.set("a", device("cameras-1", "1", true))
	m.observe("cameras-1", stored([]string{"a"}, "1", ""))
	m.observe("cameras-1", nil)
	require.Equal(t, []string{"cameras-1"}, m.Deleted())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = m.Await(ended)
	require.ErrorContains(t, err, "1 Instances differ, such as cameras-1: 1 nodes see it, 0 Instances exist")
}

func TestModelComparesCollidingDevices(t *testing.T) {
	const short, long = "cameras-8120fe", "cameras-8120fex55e2ca"
	m := NewModel()
	m.set("a", device(short, "1", false))
	m.set("b", device(short, "2", false))
	require.Equal(t, 1, m.Collisions())
	m.observe(short, stored([]string{"b"}, "2", ""))
	require.False(t, m.Matches(short))
	m.observe(long, stored([]string{"b"}, "2", ""))
	require.False(t, m.Matches(short))
	m.observe(long, stored([]string{"a"}, "1", ""))
	require.True(t, m.Matches(short))
	m.remove(short, "b")
	m.observe(short, nil)
	require.True(t, m.Matches(short))
	require.Empty(t, m.Deleted())
	m.observe(long, nil)
	require.Equal(t, []string{long}, m.Deleted())
}
