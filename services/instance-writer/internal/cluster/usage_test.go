package cluster

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

func onNodes(name string, bytes int, nodes ...string) *akriv0.Instance {
	instance := newInstance("1")
	instance.Name, instance.Spec.Nodes = name, nodes
	instance.Spec.BrokerProperties = map[string]string{"P": string(make([]byte, bytes))}
	return instance
}

// The usage of a node is that of the Instances that list it, after any changes.
func TestUsageOfNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Cluster{usages: map[string]usage{}}
		instances := map[string]*akriv0.Instance{}
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			var after *akriv0.Instance
			if rapid.Bool().Draw(t, "exists") {
				nodes := rapid.SampledFrom([][]string{{"m"}, {"n"}, {"m", "n"}, nil}).Draw(t, "nodes")
				after = onNodes(name, rapid.IntRange(0, 3).Draw(t, "bytes"), nodes...)
			}
			if instances[name] == nil && after == nil {
				continue
			}
			c.countUsage(instances[name], after)
			if instances[name] = after; after == nil {
				delete(instances, name)
			}
		}
		expected := map[string]usage{}
		for _, instance := range instances {
			for _, node := range instance.Spec.Nodes {
				total := expected[node]
				total.add(usageOf(instance, node))
				expected[node] = total
			}
		}
		require.Equal(t, expected, c.usages)
	})
}

// Own writes count before the watch delivers them.
func TestLimitsOfNodes(t *testing.T) {
	written := onNodes("written", 10, "n")
	c := newUnwatched(t, written)
	for i := range MaxNodeDevices - 1 {
		c.watched(nil, onNodes(fmt.Sprint(i), 0, "n"))
	}
	require.True(t, c.Fits("n", 1, 100))
	require.False(t, c.Fits("n", 1, MaxNodeBytes))
	_, err := c.Create(t.Context(), written)
	require.NoError(t, err)
	require.False(t, c.Fits("n", 1, 100))
	require.True(t, c.Fits("n", 0, 100))
	require.True(t, c.Fits("other", 1, 100))

	require.NoError(t, c.Instances.GetStore().Add(written))
	c.watched(nil, written)
	require.False(t, c.Fits("n", 1, 100))
	c.watched(onNodes("0", 0, "n"), nil)
	require.True(t, c.Fits("n", 1, 100))
}
