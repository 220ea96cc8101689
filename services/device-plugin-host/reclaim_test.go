package devicepluginhost_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func TestSlotIsReleasedAfterPodEnds(t *testing.T) {
	t.Parallel()
	for resource, c := range map[string]struct{ id, usage string }{
		"akri.sh/" + first: {first + "-0", "node-a"},
		configuration:      {"0", "C:0:node-a"},
	} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			f := startFixture(t)
			f.writer.Put(first, "akri-onvif", 1)
			f.seeCameras()
			f.awaitDevices(resource, all(healthy, c.id))
			f.eventually(func(c *assert.CollectT) { require.Equal(c, 1, f.pods.listed(), "an Instance is new") })

			_, err := f.kubelet.allocate(resource, ids(c.id))
			require.NoError(t, err)
			f.pods.set(resource, c.id)
			f.awaitPodLists(2)
			require.Equal(t, []string{c.usage}, f.writer.Usage(first))

			f.pods.set(resource)
			ended := time.Now()
			f.awaitUsage(first, "")
			t.Logf("released after %s", time.Since(ended))
		})
	}
}

// The example of the proposal: the kubelet requests "0" and "1", which are slots of one camera, and
// requests them again after the slots of the Pods that ended are free.
func TestVirtualDevicesAreReducedAfterReclaim(t *testing.T) {
	t.Parallel()
	f := startFixture(t)
	f.pods.set(configuration, "0", "1", "2", "3")
	f.writer.Put(first, "akri-onvif", 2, "C:0:node-a", "C:1:node-a")
	f.writer.Put(second, "akri-onvif", 2, "C:2:node-a", "C:3:node-a")
	f.seeCameras()
	f.awaitDevices(configuration, all(healthy, "0", "1", "2", "3"))
	f.awaitPodLists(2)
	_, err := f.kubelet.allocate(configuration, ids("0", "1"))
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)

	f.pods.set(configuration, "3")
	f.awaitUsage(first, "", "")
	f.awaitUsage(second, "", "C:3:node-a")
	f.awaitDevices(configuration, all(healthy, "0", "1", "3"))
	_, err = f.kubelet.allocate(configuration, ids("0", "1"))
	require.NoError(t, err)
	require.Equal(t, []string{"C:0:node-a", ""}, f.writer.Usage(first))
	require.Equal(t, []string{"C:1:node-a", "C:3:node-a"}, f.writer.Usage(second))
}

func TestIncompletePodListReleasesNothing(t *testing.T) {
	t.Parallel()
	f := startFixture(t)
	f.writer.Put(first, "akri-onvif", 1, "node-a")
	f.pods.set("akri.sh/"+first, first+"-0")
	f.awaitPodLists(2)
	for name, change := range map[string]func(){
		"error":           func() { f.pods.err = errors.New("unavailable") },
		"no Pods":         func() { f.pods.pods = nil },
		"without own Pod": func() { f.pods.pods = []*podresourcesv1.PodResources{{Namespace: "kube-system", Name: "etcd"}} },
	} {
		f.pods.mu.Lock()
		f.pods.err = nil
		change()
		f.pods.mu.Unlock()
		f.awaitPodLists(3)
		require.Equal(t, []string{"node-a"}, f.writer.Usage(first), name)
	}
}

func TestSlotsHeldAtStart(t *testing.T) {
	t.Parallel()
	f := startFixture(t)
	f.pods.set("akri.sh/"+first, first+"-1")
	f.writer.Put(first, "akri-onvif", 3, "node-a", "node-a", "node-b")
	f.awaitPodLists(2)
	f.pods.set("")
	f.awaitUsage(first, "node-a", "", "node-b")
}

// The pod-resources API does not list the devices of init containers. After 20 s the checkpoint
// file decides.
func TestInitContainerKeepsSlot(t *testing.T) {
	t.Parallel()
	f := startFixture(t)
	resource, id := "akri.sh/"+first, first+"-0"
	f.writer.Put(first, "akri-onvif", 1)
	f.seeCameras()
	f.awaitDevices(resource, all(healthy, id))
	f.awaitDevices(configuration, all(healthy, "0"))
	f.kubelet.setAllocated(map[string][]string{resource: {id}})
	_, err := f.kubelet.allocate(resource, ids(id))
	require.NoError(t, err)
	f.awaitDevices(configuration, map[string]string{}) // no other list is sent after this one
	f.awaitCheckpoint()
	f.awaitPodLists(2)
	require.Equal(t, []string{"node-a"}, f.writer.Usage(first))
	f.kubelet.setAllocated(map[string][]string{})
	f.awaitCheckpoint()
	f.awaitUsage(first, "")
}

// The kubelet rejects a Pod if one of its resources is refused. The slots of the others are
// released with its next list, not after 20 s.
func TestSlotOfRejectedPodIsReleased(t *testing.T) {
	t.Parallel()
	f := startFixture(t)
	f.writer.Put(first, "akri-onvif", 1)
	f.writer.Put(second, "akri-onvif", 1, "node-b")
	f.seeCameras()
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.awaitDevices("akri.sh/"+second, all(unhealthy, second+"-0"))
	f.kubelet.setAllocated(map[string][]string{})
	_, err := f.kubelet.allocate("akri.sh/"+first, ids(first+"-0"))
	require.NoError(t, err)
	f.awaitPodLists(2)
	require.Equal(t, []string{"node-a"}, f.writer.Usage(first))
	_, err = f.kubelet.allocate("akri.sh/"+second, ids(second+"-0"))
	require.Error(t, err)
	f.awaitUsage(first, "")
}

// awaitCheckpoint waits until a plugin has sent its devices again, so that the kubelet writes its
// checkpoint file.
func (f *fixture) awaitCheckpoint() {
	f.t.Helper()
	lists := func() int { return f.kubelet.lists("akri.sh/"+first) + f.kubelet.lists(configuration) }
	before := lists()
	require.Eventually(f.t, func() bool { return lists() > before }, 6*timeout, 10*time.Millisecond)
}

func TestUnansweredReleaseKeepsNewReservation(t *testing.T) {
	t.Parallel()
	for name, checksRevision := range map[string]bool{"the release fails": true, "the release succeeds": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFixture(t)
			f.writer.ChecksRevision = checksRevision
			resource, id := "akri.sh/"+first, first+"-0"
			f.pods.set(resource, id)
			f.writer.Put(first, "akri-onvif", 1, "node-a")
			f.seeCameras()
			f.awaitDevices(resource, all(healthy, id))
			f.awaitPodLists(2)
			f.writer.HangReleases()
			f.pods.set("")
			f.awaitHangingRelease()
			answered := make(chan error, 1)
			go func() { // waits until the release times out
				_, err := f.kubelet.allocate(resource, ids(id))
				answered <- err
			}()
			late := f.writer.AnswerReleases()
			require.NoError(t, <-answered)
			f.pods.set(resource, id)
			require.Equal(t, []string{"node-a"}, f.writer.Usage(first))
			for _, release := range late {
				release()
			}
			if checksRevision {
				require.Equal(t, []string{"node-a"}, f.writer.Usage(first))
			}
			f.awaitUsage(first, "node-a")
		})
	}
}

func TestReleaseDoesNotDelayRegistration(t *testing.T) {
	t.Parallel()
	f := startFixture(t)
	f.pods.set("akri.sh/"+first, first+"-0")
	f.writer.Put(first, "akri-onvif", 1, "node-a")
	f.seeCameras()
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.awaitPodLists(2)
	f.writer.HangReleases()
	f.pods.set("")
	f.awaitHangingRelease()
	f.kubelet.stop()
	f.kubelet = startKubelet(t, f.config.KubeletDir)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	require.Zero(t, f.writer.TimedOutReleases(), "the release still hangs")
	f.writer.AnswerReleases()
}
