package reconcile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/slots"
)

func (r *Reconciler) onInstance(before, after *akriv0.Instance) {
	instance := after
	if after == nil {
		instance = before
	}
	owner := cluster.Owner(instance)
	r.instances.Add(Key{owner, instance.Name})
	if before == nil || after == nil || !slices.Equal(slots.Unreadable(before), slots.Unreadable(after)) {
		r.lookAtStatus(owner)
	}
}

func (r *Reconciler) onConfiguration(before, after *akriv0.Configuration) {
	configuration := after
	if after == nil {
		configuration = before
	}
	key := cluster.Key(configuration)
	if before != nil && after != nil && sameSpec(before, after) {
		r.statuses.Add(key)
		return
	}
	r.lookAtStatus(key)
	names := r.Reports.Names(key)
	for _, instance := range r.Cluster.InstancesOf(key) {
		names = append(names, instance.Name)
	}
	if before != nil && (after == nil || after.UID != before.UID) {
		r.Reports.Drop(key, before.UID)
	}
	for _, key := range keys(key, names) {
		r.look(key)
	}
}

func sameSpec(a, b *akriv0.Configuration) bool {
	return a.UID == b.UID && a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp)
}

func (r *Reconciler) onNode(before, after *corev1.Node) {
	node := after
	if after == nil {
		node = before
		r.forgetNode(node.Name)
	}
	if before == nil || after == nil || !equality.Semantic.DeepEqual(before.Status, after.Status) {
		r.nodes.Add(node.Name)
	}
}

// forgetNode lets the status of every Configuration that speaks of the node drop it.
func (r *Reconciler) forgetNode(name string) {
	for _, configuration := range r.Cluster.Configurations() {
		if slices.ContainsFunc(configuration.Status.Nodes, func(n akriv0.NodeStatus) bool { return n.Name == name }) {
			r.lookAtStatus(cluster.Key(configuration))
		}
	}
}
