// Package forget removes the devices of a node on which the services of nodes no longer run.
//
// instance-writer keeps the devices of such a node, because it cannot distinguish a node that was
// removed from Akri from one whose services are down. Only a user can decide that they do not
// return.
package forget

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"
)

// components report the devices of a node, or reserve their slots. While one runs, it would add
// again what was forgotten.
var components = []string{"discovery-operator", "device-plugin-host", "dra-kubelet-plugin", "agent"}

// Plan is what is known about a node, and what should be removed.
type Plan struct {
	Node    string
	Changes []Change
	// Obstacles are reasons not to forget the node.
	Obstacles []string
}

// Change is the removal of a node from an Instance.
type Change struct {
	Namespace, Instance, DeviceID string
	// Delete is true if no other node sees the device.
	Delete bool
	// Slots that the node holds.
	Slots []string
}

// Of returns the plan for the node.
func Of(s *explain.Snapshot, node string) Plan {
	plan := Plan{Node: node, Obstacles: obstacles(s, node)}
	for i := range s.Instances {
		instance := &s.Instances[i]
		slots := held(instance, node)
		if len(slots) == 0 && !slices.Contains(instance.Spec.Nodes, node) {
			continue
		}
		plan.Changes = append(plan.Changes, Change{
			Namespace: instance.Namespace, Instance: instance.Name, DeviceID: instance.Annotations[akriv0.DeviceIDAnnotation],
			Delete: isLast(instance, node), Slots: slots,
		})
	}
	slices.SortFunc(plan.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Instance, b.Instance))
	})
	return plan
}

func obstacles(s *explain.Snapshot, node string) []string {
	var found []string
	if s.OneNamespace || slices.Contains(s.Unreadable, "pods") {
		found = append(found, "you may not list the Pods of all namespaces, so it is not known whether Akri runs on "+node)
	}
	var running, users []string
	for i := range s.Pods {
		pod := &s.Pods[i]
		switch {
		case pod.Spec.NodeName != node || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		case explain.IsAkri(pod):
			if component := pod.Labels[explain.ComponentLabel]; slices.Contains(components, component) {
				running = append(running, component)
			}
		case len(explain.DeviceRequests(pod)) > 0:
			users = append(users, pod.Namespace+"/"+pod.Name)
		}
	}
	slices.Sort(running)
	slices.Sort(users)
	if len(running) > 0 {
		found = append(found, fmt.Sprintf("Akri still runs on %s (%s): keep its DaemonSets off the node first, with a taint or global.nodePlane.nodeSelector",
			node, strings.Join(running, ", ")))
	}
	if len(users) > 0 {
		found = append(found, fmt.Sprintf("Pods on %s use devices: %s", node, strings.Join(users, ", ")))
	}
	return found
}

// held returns the names of the slots that the node holds.
func held(instance *akriv0.Instance, node string) []string {
	var slots []string
	for slot, value := range instance.Spec.DeviceUsage {
		if holder, err := akriv0.ParseSlotHolder(value); err == nil && !holder.Free() && holder.Node == node {
			slots = append(slots, slot)
		}
	}
	slices.Sort(slots)
	return slots
}

// isLast reports whether no other node sees the device.
func isLast(instance *akriv0.Instance, node string) bool {
	return slices.Contains(instance.Spec.Nodes, node) && len(instance.Spec.Nodes) == 1
}

// Apply makes the changes. Each write carries the resourceVersion of the Instance that it changes,
// so that it does not undo a write of instance-writer.
func Apply(ctx context.Context, client *cluster.Client, plan Plan) error {
	for _, change := range plan.Changes {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return apply(ctx, client, change, plan.Node) })
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("forget %s in Instance %s/%s: %w", plan.Node, change.Namespace, change.Instance, err)
		}
	}
	return nil
}

func apply(ctx context.Context, client *cluster.Client, change Change, node string) error {
	instances := client.Instances.In(change.Namespace)
	instance, err := instances.Get(ctx, change.Instance, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if isLast(instance, node) {
		return instances.Delete(ctx, instance.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &instance.UID, ResourceVersion: &instance.ResourceVersion},
		})
	}
	// instance-writer updates the number of used slots in the status.
	instance.Spec.Nodes = slices.DeleteFunc(instance.Spec.Nodes, func(n string) bool { return n == node })
	for _, slot := range held(instance, node) {
		instance.Spec.DeviceUsage[slot] = ""
	}
	_, err = instances.Update(ctx, instance, metav1.UpdateOptions{})
	return err
}
