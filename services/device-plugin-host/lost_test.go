package devicepluginhost_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASlotInUseThatIsRecordedAsFreeIsTakenBack(t *testing.T) {
	t.Parallel()
	for resource, c := range map[string]struct{ id, held string }{
		"akri.sh/" + first: {first + "-0", "node-a"},
		configuration:      {"0", "C:0:node-a"},
	} {
		for name, lose := range map[string]func(m *mesh){
			"the Instance was made anew": func(m *mesh) {
				m.writer.remove(first)
				m.awaitGone("akri.sh/" + first)
				m.writer.put(first, "akri-onvif", 1)
			},
			"somebody freed it": func(m *mesh) { m.writer.put(first, "akri-onvif", 1) },
		} {
			t.Run(resource+" "+name, func(t *testing.T) {
				t.Parallel()
				m := startMesh(t)
				m.writer.put(first, "akri-onvif", 1)
				m.seesCameras()
				m.awaitDevices(resource, all(healthy, c.id))
				_, err := m.kubelet.allocate(resource, ids(c.id))
				require.NoError(t, err)
				m.pods.set(resource, c.id)
				m.awaitAnswers(2)
				lose(m)
				began := time.Now()
				m.awaitUsage(first, c.held)
				t.Logf("taken back after %s", time.Since(began))
				m.awaitLost("taken_back")
				m.pods.set(resource)
				m.awaitUsage(first, "")
			})
		}
	}
}

func TestASlotInUseIsTakenBackByAHostThatWasNotThere(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.pods.set("akri.sh/"+first, first+"-0")
	m.writer.put(first, "akri-onvif", 2)
	m.awaitUsage(first, "node-a", "")
}

func TestASlotInUseThatSomebodyElseHoldsIsReportedOnce(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.pods.set("akri.sh/"+first, first+"-0", first+"-1")
	m.writer.put(first, "akri-onvif", 2, "node-b")
	m.awaitUsage(first, "node-b", "node-a")
	m.awaitAnswers(3)
	require.Equal(t, 1.0, m.lost("taken"))
	m.awaitLost("taken_back")
}

func TestAVirtualDeviceOfWhichNoSlotIsKnownIsReportedOnce(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.pods.set(configuration, "7")
	m.writer.put(first, "akri-onvif", 2, "node-a")
	m.awaitAnswers(3)
	require.Equal(t, 1.0, m.lost("unknown"))
}

func TestAReleaseThatWasNotAnsweredFreesNoSlotThatWasGivenAnew(t *testing.T) {
	t.Parallel()
	for name, fenced := range map[string]bool{"it meets another revision": true, "it is carried out": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMesh(t)
			m.writer.fenced = fenced
			resource, id := "akri.sh/"+first, first+"-0"
			m.pods.set(resource, id)
			m.writer.put(first, "akri-onvif", 1, "node-a")
			m.seesCameras()
			m.awaitDevices(resource, all(healthy, id))
			m.awaitAnswers(2)
			m.writer.leaveUnanswered()
			m.pods.set("")
			m.awaitUnanswered()
			answered := make(chan error, 1)
			go func() { // waits until the release was given up
				_, err := m.kubelet.allocate(resource, ids(id))
				answered <- err
			}()
			late := m.writer.unanswered()
			require.NoError(t, <-answered)
			m.pods.set(resource, id)
			require.Equal(t, []string{"node-a"}, m.writer.usage(first))
			for _, release := range late {
				release()
			}
			if fenced {
				require.Equal(t, []string{"node-a"}, m.writer.usage(first))
			}
			m.awaitUsage(first, "node-a")
		})
	}
}

func TestASlotThatWasJustGivenIsTakenBackBeforeItsPodIsListed(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	resource, id := "akri.sh/"+first, first+"-0"
	m.writer.put(first, "akri-onvif", 1)
	m.seesCameras()
	m.awaitDevices(resource, all(healthy, id))
	_, err := m.kubelet.allocate(resource, ids(id))
	require.NoError(t, err)
	m.writer.put(first, "akri-onvif", 1)
	m.awaitUsage(first, "node-a")
}

func TestAKubeletThatStartsAnewIsNotKeptWaitingByTheWriter(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.pods.set("akri.sh/"+first, first+"-0")
	m.writer.put(first, "akri-onvif", 1, "node-a")
	m.seesCameras()
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.awaitAnswers(2)
	m.writer.leaveUnanswered()
	m.pods.set("")
	m.awaitUnanswered()
	m.kubelet.stop()
	m.kubelet = startKubelet(t, m.config.KubeletDir)
	began := time.Now()
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	require.Less(t, time.Since(began), 2*time.Second)
	m.writer.unanswered()
}

// awaitUnanswered waits until a release hangs.
func (m *mesh) awaitUnanswered() {
	m.t.Helper()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) {
		m.writer.mu.Lock()
		defer m.writer.mu.Unlock()
		require.NotEmpty(c, m.writer.late)
	}, soon, 2*time.Millisecond)
}

func TestADeviceOfAnInitContainerStaysHeldUntilTheKubeletLetsItGo(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	resource, id := "akri.sh/"+first, first+"-0"
	m.writer.put(first, "akri-onvif", 1)
	m.seesCameras()
	m.awaitDevices(resource, all(healthy, id))
	m.kubelet.note(map[string][]string{resource: {id}})
	_, err := m.kubelet.allocate(resource, ids(id))
	require.NoError(t, err)
	listsBefore := m.kubelet.lists(resource)
	require.Never(t, func() bool { return m.writer.usage(first)[0] == "" }, 23*time.Second, 100*time.Millisecond)
	require.Greater(t, m.kubelet.lists(resource)+m.kubelet.lists(configuration), listsBefore, "the kubelet was made to write its file")
	m.kubelet.note(map[string][]string{})
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.Equal(c, []string{""}, m.writer.usage(first)) }, 8*time.Second, 10*time.Millisecond)
}

// awaitLost waits until exactly one slot was lost with that result.
func (m *mesh) awaitLost(result string) {
	m.t.Helper()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) { require.Equal(c, 1.0, m.lost(result)) }, soon, 2*time.Millisecond)
}

// lost is the metric of lost slots.
func (m *mesh) lost(result string) float64 {
	families, err := m.metrics.Gather()
	require.NoError(m.t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "akri_lost_slots_total" && metric.GetLabel()[0].GetValue() == result {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}
