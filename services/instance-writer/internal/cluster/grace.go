package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/grace"
)

// trimNode keeps the name, the labels that the kubelet cannot set, how its Pods get devices, the
// versions of the kubelet and of the runtime, the taints that users set, whether the node is
// cordoned, and the Ready condition without its heartbeat, so that heartbeats are no changes.
func trimNode(node *corev1.Node) {
	ready, taints, labels, cordoned := readyCondition(node), userTaints(node), keptLabels(node), node.Spec.Unschedulable
	info := node.Status.NodeInfo
	*node = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: labels}}
	node.Spec.Taints, node.Spec.Unschedulable = taints, cordoned
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: info.KubeletVersion, ContainerRuntimeVersion: info.ContainerRuntimeVersion}
	if ready != nil {
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: ready.Type, Status: ready.Status, LastTransitionTime: ready.LastTransitionTime},
		}
	}
}

func keptLabels(node *corev1.Node) map[string]string {
	var labels map[string]string
	for key, value := range node.Labels {
		if strings.HasPrefix(key, akriv0.NodeRestrictionPrefix) || key == akriv0.ResourcesLabel {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key] = value
		}
	}
	return labels
}

// NodeLabels returns the labels of the Node that Configurations select by, which its kubelet cannot
// set.
func (c *Cluster) NodeLabels(name string) map[string]string {
	if node, ok := c.Nodes.Get(name); ok {
		return node.Labels
	}
	return nil
}

// Allows returns whether devices of the Configuration may be on the node.
func (c *Cluster) Allows(configuration *akriv0.Configuration, node string) bool {
	return configuration.Spec.Nodes.Allows(node, c.NodeLabels(node))
}

// AllowsIn is Allows for the Configuration with the key. One that the watch has not delivered
// allows all nodes: no devices are accepted for it, and its Instances list the nodes that it
// allowed.
func (c *Cluster) AllowsIn(configuration types.NamespacedName, node string) bool {
	cached, ok := c.Configurations.Get(configuration.String())
	return !ok || c.Allows(cached, node)
}

// userTaints returns the taints that keep Pods from the node, without those that Kubernetes sets
// for the state of the node. Pods of a DaemonSet tolerate the latter.
func userTaints(node *corev1.Node) []corev1.Taint {
	var taints []corev1.Taint
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			taints = append(taints, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
		}
	}
	return taints
}

func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// NodeExists reports whether the Node exists. It queries the API server if the cache has no such
// Node.
func (c *Cluster) NodeExists(ctx context.Context, name string) (bool, error) {
	if _, ok := c.Nodes.Get(name); ok {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.nodeClient.In("").Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get Node: %w", err)
	}
	return true, nil
}

// NodeUnavailable reports whether the Node does not exist or has been not ready for longer than the
// period. For a Node that is not ready within the period, remaining is the rest of it. A Node
// without a Ready condition is available.
func (c *Cluster) NodeUnavailable(
	ctx context.Context, name string, period time.Duration,
) (unavailable bool, remaining time.Duration, err error) {
	node, ok := c.Nodes.Get(name)
	if !ok {
		c.notReady.forget(name)
		exists, err := c.NodeExists(ctx, name)
		return err == nil && !exists, 0, err
	}
	since, notReady := c.notReady.observe(node)
	if !notReady {
		return false, 0, nil
	}
	wait, now := grace.Wait{Awaited: "the Node is ready", Since: since, For: period, Then: "its devices are removed"}, time.Now()
	return wait.Over(now), wait.Left(now), nil
}

// notReadyNodes records when this process first saw that a Node is not ready: the transition time
// of the Ready condition is of the clock of another machine.
type notReadyNodes struct {
	mu     sync.Mutex
	byName map[string]notReadySince
}

type notReadySince struct {
	uid types.UID
	// transition distinguishes one period of not being ready from the next.
	transition metav1.Time
	since      time.Time
}

// observe returns since when this process has seen that the Node is not ready. It returns false if
// the Node is ready.
func (n *notReadyNodes) observe(node *corev1.Node) (since time.Time, notReady bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ready := readyCondition(node)
	if ready == nil || ready.Status == corev1.ConditionTrue {
		delete(n.byName, node.Name)
		return time.Time{}, false
	}
	known, ok := n.byName[node.Name]
	if !ok || known.uid != node.UID || !known.transition.Equal(&ready.LastTransitionTime) {
		known = notReadySince{node.UID, ready.LastTransitionTime, time.Now()}
		n.byName[node.Name] = known
	}
	return known.since, true
}

func (n *notReadyNodes) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byName, name)
}
