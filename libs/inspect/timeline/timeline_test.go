package timeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
	"akri.sh/libs/inspect/timeline"
)

// observe records the Snapshot as a new one, because a Snapshot does not change.
func observe(r *timeline.Recorder, s *explain.Snapshot, now time.Time) bool {
	return r.Observe(&explain.Snapshot{
		Now: s.Now, Configurations: s.Configurations, Instances: s.Instances, Nodes: s.Nodes, Pods: s.Pods,
		Installation: s.Installation,
	}, now)
}

func texts(t timeline.Timeline) string {
	var texts []string
	for _, entry := range t.Entries {
		texts = append(texts, entry.Text)
	}
	return strings.Join(texts, "\n")
}

func TestTimeline(t *testing.T) {
	s := fixture.Load(t, "../explain/testdata/healthy.yaml")
	r := &timeline.Recorder{}
	require.True(t, r.Of("default", "camera-8120fe").Since.IsZero())
	require.False(t, observe(r, s, fixture.Now))
	require.Equal(t, timeline.Timeline{Since: fixture.Now}, r.Of("default", "camera-8120fe"), "what was before is not known")
	require.False(t, observe(r, s, fixture.Now))

	later := fixture.Now.Add(time.Hour)
	instance := s.Instances[0].DeepCopy()
	instance.Spec.Nodes = []string{"node-b"}
	instance.Spec.DeviceUsage = map[string]string{"camera-8120fe-0": "", "camera-8120fe-1": "node-c"}
	s.Instances = []akriv0.Instance{*instance}
	s.Nodes[1].Status.Conditions = nil
	require.True(t, observe(r, s, later))
	found := r.Of("default", "camera-8120fe")
	require.Equal(t, "BROKEN: NodeNotReady\nnode-c holds slot camera-8120fe-1\nslot camera-8120fe-0 is free, node-a held it\nnode-a does not see it any more", texts(found))
	require.Equal(t, later, found.Entries[0].Time)
	require.Equal(t, fixture.Now, found.Since)

	s.Instances = nil
	require.True(t, observe(r, s, later))
	require.False(t, observe(r, s, later))
	require.True(t, strings.HasPrefix(texts(r.Of("default", "camera-8120fe")), "removed\nBROKEN"))
	s.Instances = []akriv0.Instance{*instance}
	require.True(t, observe(r, s, later))
	require.True(t, strings.HasPrefix(texts(r.Of("default", "camera-8120fe")), "BROKEN: NodeNotReady\nnode-c holds slot camera-8120fe-1\nnode-b sees it\nfound\nremoved"))
	require.Empty(t, r.Of("other", "camera-8120fe").Entries)
}

// A device that changes often loses its own record, and devices that come and go do not fill the
// memory.
func TestTimelineIsBounded(t *testing.T) {
	r := &timeline.Recorder{}
	r.Observe(&explain.Snapshot{}, fixture.Now)
	device := func(i int, nodes ...string) akriv0.Instance {
		instance := akriv0.Instance{Spec: akriv0.InstanceSpec{Nodes: nodes}}
		instance.Namespace, instance.Name = "default", fmt.Sprintf("device-%d", i)
		return instance
	}
	quiet := device(-1, "node-a")
	for i := range 200 {
		r.Observe(&explain.Snapshot{Instances: []akriv0.Instance{quiet, device(0, fmt.Sprintf("node-%d", i))}}, fixture.Now)
	}
	require.Len(t, r.Of("default", "device-0").Entries, 100)
	require.Contains(t, texts(r.Of("default", "device--1")), "found")

	for round := range 50 {
		s := &explain.Snapshot{}
		for i := range 500 {
			s.Instances = append(s.Instances, device(1+500*round+i, "node-a"))
		}
		s.Instances = append(s.Instances, quiet)
		r.Observe(s, fixture.Now.Add(time.Duration(round)*time.Minute))
	}
	require.Contains(t, texts(r.Of("default", "device--1")), "found", "it exists")
	require.Empty(t, r.Of("default", "device-1").Entries, "it was removed first")
	require.NotEmpty(t, r.Of("default", "device-24000").Entries)
	total := 0
	for i := range 50 * 500 {
		total += len(r.Of("default", fmt.Sprintf("device-%d", i)).Entries)
	}
	require.LessOrEqual(t, total, 50_000)
	require.Greater(t, total, 40_000)
}
