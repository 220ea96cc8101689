package reconcile

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/slots"
	"akri.sh/services/instance-writer/internal/status"
)

func (r *Reconciler) onInstance(before, after *akriv0.Instance) {
	group := cluster.GroupOf(cmp.Or(after, before))
	r.instances.add(group)
	if before == nil || after == nil || !slices.Equal(before.Spec.Nodes, after.Spec.Nodes) ||
		!slices.Equal(slots.MalformedMessages(before), slots.MalformedMessages(after)) {
		r.enqueueStatus(group.Configuration)
	}
}

func (r *Reconciler) onConfiguration(before, after *akriv0.Configuration) {
	key := cluster.Key(cmp.Or(after, before))
	if before != nil && after != nil && sameSpec(before, after) {
		r.recordReports(before, after)
		if !status.SameSpecValid(before.Status.Conditions, after.Status.Conditions) {
			r.statusSchedule.markNew(key)
		}
		r.statuses.add(key)
		return
	}
	if after == nil {
		r.DeviceChanges.DeletePartialMatch(prometheus.Labels{"configuration": key.Name})
	} else {
		r.DeviceChanges.WithLabelValues(key.Name, "added") // exists at zero
		r.DeviceChanges.WithLabelValues(key.Name, "removed")
	}
	r.enqueueStatus(key)
	r.NamesChanged()
	groups := groupsOf(key, r.Reports.ShortNames(key))
	for _, instance := range r.Cluster.InstancesOf(key) {
		groups = append(groups, cluster.GroupOf(instance))
	}
	if before != nil && (after == nil || after.UID != before.UID) {
		r.Reports.Drop(key, before.UID)
	}
	r.enqueueInstances(groups...)
}

// NamesChanged enqueues the Configurations whose names may have become free.
func (r *Reconciler) NamesChanged() {
	for _, configuration := range r.Cluster.Configurations.List() {
		ready := meta.FindStatusCondition(configuration.Status.Conditions, akriv0.ConditionReady)
		if ready != nil && ready.Reason == akriv0.ReasonNameTaken {
			r.enqueueStatus(cluster.Key(configuration))
		}
	}
}

// Decided enqueues the devices that wait for the decision how Pods get devices.
func (r *Reconciler) Decided() {
	for _, configuration := range r.Cluster.Configurations.List() {
		key := cluster.Key(configuration)
		r.enqueueInstances(groupsOf(key, r.Reports.ShortNames(key))...)
		r.enqueueStatus(key)
	}
}

// recordReports records the nodes that have reported according to the status that another replica
// wrote. This replica otherwise learns that a node is back only with its next observation, and
// would undo the write.
func (r *Reconciler) recordReports(before, after *akriv0.Configuration) {
	previous := map[string]akriv0.NodeStatus{}
	for _, node := range before.Status.Nodes {
		previous[node.Name] = node
	}
	for _, node := range after.Status.Nodes {
		if node.NotReportingSince == nil && !equality.Semantic.DeepEqual(previous[node.Name], node) {
			r.reporting.Reported(node.Name)
		}
	}
}

func sameSpec(a, b *akriv0.Configuration) bool {
	return a.UID == b.UID && a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp)
}

func (r *Reconciler) onNode(before, after *corev1.Node) {
	node := cmp.Or(after, before)
	isOther := before == nil || after == nil
	relabelled := isOther || !maps.Equal(before.Labels, after.Labels)
	if relabelled {
		r.enqueueRestricted()
	}
	if isOther || !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		r.nodesChanged.Store(true)
	}
	if relabelled || !equality.Semantic.DeepEqual(before.Status, after.Status) {
		r.enqueueStatusesWith(node.Name)
		r.nodes.add(node.Name)
	}
}

// onReporting enqueues the status of all Configurations if it depends on the observation. A change
// of Nodes waits for the next observation, so that the first report of a new Node is part of the
// same write.
func (r *Reconciler) onReporting(changed bool) {
	if !r.nodesChanged.Swap(false) && !changed {
		return
	}
	for _, configuration := range r.Cluster.Configurations.List() {
		r.enqueueStatus(cluster.Key(configuration))
	}
}

func (r *Reconciler) nodeNames() []string {
	var names []string
	for _, node := range r.Cluster.Nodes.List() {
		names = append(names, node.Name)
	}
	return names
}

// enqueueStatusesWith enqueues the Configurations whose status has an entry of the node.
func (r *Reconciler) enqueueStatusesWith(node string) {
	for _, configuration := range r.Cluster.Configurations.List() {
		if slices.ContainsFunc(configuration.Status.Nodes, func(n akriv0.NodeStatus) bool { return n.Name == node }) {
			r.enqueueStatus(cluster.Key(configuration))
		}
	}
}

// enqueueRestricted enqueues the status of the Configurations that do not allow all nodes.
func (r *Reconciler) enqueueRestricted() {
	for _, configuration := range r.Cluster.Configurations.List() {
		if configuration.Spec.Nodes != nil {
			r.enqueueStatus(cluster.Key(configuration))
		}
	}
}

// enqueueInstances enqueues groups of Instances with new input.
func (r *Reconciler) enqueueInstances(groups ...cluster.Group) {
	r.instanceSchedule.markNew(groups...)
	for _, group := range groups {
		r.instances.add(group)
	}
}

// enqueueStatus enqueues the status of a Configuration with new input.
func (r *Reconciler) enqueueStatus(configuration types.NamespacedName) {
	r.statusSchedule.markNew(configuration)
	r.statuses.add(configuration)
}
