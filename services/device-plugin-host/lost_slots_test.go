package devicepluginhost_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLostSlotIsTakenBack(t *testing.T) {
	t.Parallel()
	for resource, c := range map[string]struct{ id, usage string }{
		"akri.sh/" + first: {first + "-0", "node-a"},
		configuration:      {"0", "C:0:node-a"},
	} {
		for name, lose := range map[string]func(f *fixture){
			"Instance created again": func(f *fixture) {
				f.writer.Remove(first)
				f.awaitRemoved("akri.sh/" + first)
				f.writer.Put(first, "akri-onvif", 1)
			},
			"slot freed by a user": func(f *fixture) { f.writer.Put(first, "akri-onvif", 1) },
		} {
			t.Run(resource+" "+name, func(t *testing.T) {
				t.Parallel()
				f := startFixture(t)
				f.writer.Put(first, "akri-onvif", 1)
				f.seeCameras()
				f.awaitDevices(resource, all(healthy, c.id))
				_, err := f.kubelet.allocate(resource, ids(c.id))
				require.NoError(t, err)
				f.pods.set(resource, c.id)
				f.awaitPodLists(2)
				lose(f)
				lost := time.Now()
				f.awaitUsage(first, c.usage)
				t.Logf("taken back after %s", time.Since(lost))
				f.awaitLostSlots("taken_back")
				f.pods.set(resource)
				f.awaitUsage(first, "")
			})
		}
	}
}

func TestLostSlotIsTakenBackAfterStart(t *testing.T) {
	t.Parallel()
	f := startFixture(t)
	f.pods.set("akri.sh/"+first, first+"-0")
	f.writer.Put(first, "akri-onvif", 2)
	f.awaitUsage(first, "node-a", "")
}

func TestTakenSlotIsReportedOnce(t *testing.T) {
	t.Parallel()
	f := startFixture(t)
	f.pods.set("akri.sh/"+first, first+"-0", first+"-1")
	f.writer.Put(first, "akri-onvif", 2, "node-b")
	f.awaitUsage(first, "node-b", "node-a")
	f.awaitPodLists(3)
	require.Equal(t, 1.0, f.lostSlots("taken"))
	f.awaitLostSlots("taken_back")
}

// The node holds no slot then, but must compare the lists of the kubelet.
func TestOnlySlotIsTaken(t *testing.T) {
	t.Parallel()
	f := startFixture(t)
	f.pods.set("akri.sh/"+first, first+"-0")
	f.writer.Put(first, "akri-onvif", 1, "node-a")
	f.awaitPodLists(2)
	f.writer.Put(first, "akri-onvif", 1, "node-b")
	f.awaitLostSlots("taken")
}

func TestUnknownVirtualSlotIsReportedOnce(t *testing.T) {
	t.Parallel()
	f := startFixture(t)
	f.pods.set(configuration, "7")
	f.writer.Put(first, "akri-onvif", 2, "node-a")
	f.awaitPodLists(3)
	require.Equal(t, 1.0, f.lostSlots("unknown"))
}

// The Pod is not listed yet.
func TestNewlyAllocatedSlotIsTakenBack(t *testing.T) {
	t.Parallel()
	f := startFixture(t)
	resource, id := "akri.sh/"+first, first+"-0"
	f.writer.Put(first, "akri-onvif", 1)
	f.seeCameras()
	f.awaitDevices(resource, all(healthy, id))
	_, err := f.kubelet.allocate(resource, ids(id))
	require.NoError(t, err)
	f.writer.Put(first, "akri-onvif", 1)
	f.awaitUsage(first, "node-a")
}
