package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// afterHeartbeats waits until the next second begins and returns its time. Heartbeats have a
// resolution of one second, so those of a stopped kubelet are before it.
func afterHeartbeats(ctx context.Context) (time.Time, error) {
	next := time.Now().Truncate(time.Second).Add(time.Second)
	return next, Pause(ctx, time.Until(next))
}

// awaitReady waits for a heartbeat at or after since, because the API server shows the status of a
// stopped node for another 40 s. It fails at once if the kubelet exits.
func (n Node) awaitReady(ctx context.Context, since time.Time) error {
	client, err := n.cluster.client()
	if err != nil {
		return err
	}
	return n.cluster.await(ctx, "node "+n.name, func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return readyAfter(node, since)
	}, n.daemon("kubelet"))
}

func readyAfter(node *corev1.Node, since time.Time) error {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return errors.New("the kubelet has not reported yet")
	}
	ready := node.Status.Conditions[i]
	switch {
	case ready.LastHeartbeatTime.Time.Before(since):
		return fmt.Errorf("the kubelet's last report is of %s", ready.LastHeartbeatTime.Format(time.TimeOnly))
	case ready.Status != corev1.ConditionTrue:
		return fmt.Errorf("the node is not ready: %s", ready.Message)
	}
	return nil
}
