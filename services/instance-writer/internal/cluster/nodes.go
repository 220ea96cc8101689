package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// trimNode keeps the name and since when the node is ready or not, so that heartbeats are no
// changes.
func trimNode(node *corev1.Node) {
	ready := readiness(node)
	*node = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion}}
	if ready != nil {
		node.Status.Conditions = []corev1.NodeCondition{{Type: ready.Type, Status: ready.Status, LastTransitionTime: ready.LastTransitionTime}}
	}
}

func readiness(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// NodeExists tells whether there is such a Node; absence from a copy is no proof.
func (c *Cluster) NodeExists(ctx context.Context, name string) (bool, error) {
	if _, ok := c.nodes.Get(name); ok {
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

// NodeOut tells whether the node is out at the time: gone, or not ready for longer than the grace.
// When it is only not ready yet, `in` says how long it has left. A node whose readiness was never
// told is in.
func (c *Cluster) NodeOut(ctx context.Context, name string, grace time.Duration, now time.Time) (out bool, in time.Duration, err error) {
	node, ok := c.nodes.Get(name)
	if !ok {
		exists, err := c.NodeExists(ctx, name)
		return err == nil && !exists, 0, err
	}
	ready := readiness(node)
	if ready == nil || ready.Status == corev1.ConditionTrue {
		return false, 0, nil
	}
	left := ready.LastTransitionTime.Add(grace).Sub(now)
	return left <= 0, max(left, 0), nil
}
