package devicepluginhost_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func TestASlotIsReleasedAfterItsPodIsGone(t *testing.T) {
	t.Parallel()
	for resource, c := range map[string]struct{ id, held string }{
		"akri.sh/" + first: {first + "-0", "node-a"},
		configuration:      {"0", "C:0:node-a"},
	} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			m := startMesh(t)
			m.writer.put(first, "akri-onvif", 1)
			m.seesCameras()
			m.awaitDevices(resource, all(healthy, c.id))
			require.EventuallyWithT(t, func(c *assert.CollectT) { require.Equal(c, 1, m.pods.asked(), "an Instance appeared") }, soon, 2*time.Millisecond)

			_, err := m.kubelet.allocate(resource, ids(c.id))
			require.NoError(t, err)
			m.pods.set(resource, c.id)
			m.awaitAnswers(2)
			require.Equal(t, []string{c.held}, m.writer.usage(first))

			m.pods.set(resource)
			began := time.Now()
			m.awaitUsage(first, "")
			t.Logf("released after %s", time.Since(began))
		})
	}
}

func TestNothingIsReleasedOnTheWordOfAKubeletThatDoesNotKnowItsPods(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.writer.put(first, "akri-onvif", 1, "node-a")
	m.pods.set("akri.sh/"+first, first+"-0")
	m.awaitAnswers(2)
	for name, change := range map[string]func(){
		"it fails":          func() { m.pods.err = errors.New("not now") },
		"it lists no pods":  func() { m.pods.pods = nil },
		"it lists only one": func() { m.pods.pods = []*podresourcesv1.PodResources{{Namespace: "kube-system", Name: "etcd"}} },
	} {
		m.pods.mu.Lock()
		m.pods.err = nil
		change()
		m.pods.mu.Unlock()
		m.awaitAnswers(3)
		require.Equal(t, []string{"node-a"}, m.writer.usage(first), name)
	}
}

// awaitAnswers waits until the kubelet was asked for its pods that many times more.
func (m *mesh) awaitAnswers(more int) {
	m.t.Helper()
	before := m.pods.asked()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) { require.GreaterOrEqual(c, m.pods.asked(), before+more) }, soon, 2*time.Millisecond)
}

func TestSlotsHeldBeforeAStartCountAsInUseWhenAPodHasThem(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.pods.set("akri.sh/"+first, first+"-1")
	m.writer.put(first, "akri-onvif", 3, "node-a", "node-a", "node-b")
	m.awaitAnswers(2)
	m.pods.set("")
	m.awaitUsage(first, "node-a", "", "node-b")
}
