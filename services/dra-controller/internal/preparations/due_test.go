package preparations_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"akri.sh/services/dra-controller/internal/preparations"
)

// node is a model of a kubelet, its plugin and the Pods of a node.
type node struct {
	now time.Time
	// plugins are the Pods of the plugin that exist, and callable those that the kubelet can call.
	plugins  []*corev1.Pod
	callable map[*corev1.Pod]bool
	pods     []*waitingPod
	// returns are the times at which a plugin became ready.
	returns []time.Time
}

type waitingPod struct {
	*corev1.Pod
	// attempted is the time of the last sync, and patches the number of times that dra-controller
	// has changed the annotation.
	attempted time.Time
	patches   int
}

func (p *waitingPod) prepared() bool { return p.Status.Conditions[0].Status == corev1.ConditionTrue }

// second is the form in which Kubernetes stores times.
func (n *node) second() metav1.Time { return metav1.NewTime(n.now.Truncate(time.Second)) }

// start starts a Pod. The kubelet prepares its claims after a while, in which the plugin can go.
func (n *node) start() {
	started := n.second()
	pod := &waitingPod{Pod: &corev1.Pod{Status: corev1.PodStatus{StartTime: &started, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse, LastTransitionTime: started},
	}}}}
	n.pods = append(n.pods, pod)
}

// sync prepares the claims of the Pod if the kubelet can call a plugin.
func (n *node) sync(pod *waitingPod) {
	pod.attempted = n.now
	if !pod.prepared() && len(n.callable) > 0 {
		pod.Status.Conditions[0].Status = corev1.ConditionTrue
	}
}

// firstSyncs syncs the Pods that were started.
func (n *node) firstSyncs() {
	for _, pod := range n.pods {
		if pod.attempted.IsZero() {
			n.sync(pod)
		}
	}
}

// register makes a new plugin callable. Its Pod is ready later.
func (n *node) register() {
	plugin := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: n.second()},
	}}}
	n.plugins = append(n.plugins, plugin)
	n.callable[plugin] = true
}

func (n *node) setReady(plugin *corev1.Pod, status corev1.ConditionStatus) {
	if ready := &plugin.Status.Conditions[0]; ready.Status != status {
		ready.Status, ready.LastTransitionTime = status, n.second()
		if status == corev1.ConditionTrue {
			n.returns = append(n.returns, n.now)
		}
	}
}

// reconcile acts as dra-controller.
func (n *node) reconcile() {
	for _, pod := range n.pods {
		if returned, due := preparations.Due(pod.Pod, n.plugins); due {
			pod.Annotations = map[string]string{preparations.Annotation: returned}
			pod.patches++
			n.sync(pod)
		}
	}
}

// While a plugin is ready, no Pod waits whose preparation has failed, whatever happened before. A
// Pod is changed at most once for each return of a plugin, and no Pod that was prepared is changed.
func TestNoPodWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := &node{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), callable: map[*corev1.Pod]bool{}}
		draw := func(limit int, what string) int { return rapid.IntRange(0, limit-1).Draw(t, what) }
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			n.now = n.now.Add(time.Duration(draw(1500, "milliseconds")) * time.Millisecond)
			switch step := draw(6, "step"); {
			case step == 0:
				n.start()
			case step == 1:
				n.firstSyncs()
			case step == 2 && len(n.plugins) < 2:
				n.register()
			case step == 3 && len(n.plugins) > 0: // ready, or ready again after a restart of its container
				plugin := n.plugins[draw(len(n.plugins), "ready")]
				if last := len(n.returns) - 1; last >= 0 && n.now.Sub(n.returns[last]) < time.Second {
					n.now = n.now.Add(time.Second) // probes are two seconds apart
				}
				if !n.callable[plugin] { // a kubelet notices the end of a container before it restarts it
					n.setReady(plugin, corev1.ConditionFalse)
				}
				n.callable[plugin] = true
				n.setReady(plugin, corev1.ConditionTrue)
			case step == 4 && len(n.plugins) > 0: // the container ends, which its Pod shows or not yet
				plugin := n.plugins[draw(len(n.plugins), "ended")]
				delete(n.callable, plugin)
				if draw(2, "shown") == 1 {
					n.setReady(plugin, corev1.ConditionFalse)
				}
			case step == 5 && len(n.plugins) > 0: // the Pod is deleted
				delete(n.callable, n.plugins[0])
				n.plugins = n.plugins[1:]
			}

			if draw(3, "reconcile") == 0 {
				continue // dra-controller is late
			}
			patches := map[*waitingPod]int{}
			for _, pod := range n.pods {
				if pod.prepared() {
					patches[pod] = pod.patches
				}
			}
			n.reconcile()
			n.check(t, patches)
		}
	})
}

// check has the numbers of patches of the Pods that were prepared before.
func (n *node) check(t *rapid.T, patches map[*waitingPod]int) {
	for _, pod := range n.pods {
		if before, prepared := patches[pod]; prepared {
			require.Equal(t, before, pod.patches, "a Pod that was prepared is changed")
		}
		since := 0
		for _, returned := range n.returns {
			if !returned.Truncate(time.Second).Before(pod.Status.StartTime.Time) {
				since++
			}
		}
		require.LessOrEqual(t, pod.patches, since, "a Pod is changed more than once for a return of a plugin")
		for plugin := range n.callable {
			if plugin.Status.Conditions[0].Status == corev1.ConditionTrue {
				require.True(t, pod.prepared() || pod.attempted.IsZero(), "a Pod waits although a plugin is ready")
			}
		}
	}
}
