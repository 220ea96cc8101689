package reconcile

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/batch"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/merge"
	"akri.sh/services/instance-writer/internal/slots"
)

const (
	// forbiddenRetry is the retry interval after the API server has forbidden a write.
	forbiddenRetry     = 30 * time.Second
	reasonNotPermitted = "NotPermitted"
	// An Instance with more than manyNodes nodes is reconciled at most once in sharedInterval.
	manyNodes      = 32
	sharedInterval = 500 * time.Millisecond
	// After a write the interval is sharedInterval for each nodesPerInterval nodes: the cost of a
	// write grows with the number of nodes, and so does the number of nodes that connect.
	nodesPerInterval = 250
)

// groupRun is one run for a group.
type groupRun struct {
	*Reconciler
	run
	group cluster.Group
}

// decision is the outcome of one run of the edit of an Instance.
type decision struct {
	merge.Outcome
	// changed means that the edit changes the Instance.
	changed bool
	// early means that it would change the Instance, but that this is a correction and too early.
	early bool
	// added and removed are the nodes that the edit adds to the Instance and removes from it.
	added, removed []string
	// created means that the edit creates the Instance.
	created bool
}

// reconcileInstances writes the Instances of the group that differ from their desired state.
func (r *Reconciler) reconcileInstances(ctx context.Context, group cluster.Group) (requeueAfter time.Duration, err error) {
	begun, err := r.instanceSchedule.begin(group)
	if err != nil {
		return 0, err
	}
	input, err := r.input(ctx, group)
	if err != nil {
		return r.instanceSchedule.end(group, begun, err)
	}

	run := &groupRun{Reconciler: r, run: begun, group: group}
	refusals, err := input.Reconcile(func(name string, exact bool, desired func(*akriv0.Instance) merge.Outcome) (merge.Outcome, error) {
		return run.edit(ctx, name, exact, desired)
	})
	run.interval = runInterval(input.Instances, run.written)

	if err == nil && r.Reports.SetRefusals(group.Configuration, group.ShortName, refusals) {
		r.enqueueStatus(group.Configuration)
	}
	return r.instanceSchedule.end(group, run.run, err)
}

// runInterval returns the minimum time until the next run for Instances with many nodes. An
// Instance lists all nodes that share its device, so that one write for each node that connects
// would be too much.
func runInterval(instances []*akriv0.Instance, written bool) time.Duration {
	nodes := 0
	for _, instance := range instances {
		nodes = max(nodes, len(instance.Spec.Nodes))
	}
	switch {
	case nodes <= manyNodes:
		return 0
	case !written:
		return sharedInterval
	}
	return sharedInterval * time.Duration(1+nodes/nodesPerInterval)
}

// edit is the merge.Edit of the run. It refuses the devices of an Instance that the API server
// rejects.
func (r *groupRun) edit(
	ctx context.Context, name string, exact bool, desired func(current *akriv0.Instance) merge.Outcome,
) (merge.Outcome, error) {
	key := types.NamespacedName{Namespace: r.group.Configuration.Namespace, Name: name}
	apply := func(current *akriv0.Instance) (*akriv0.Instance, decision, error) {
		result := r.decide(current, desired)
		return result.Instance, result, nil
	}
	_, result, err := batch.EditWithValue(ctx, r.Writer, key, exact, apply)
	switch {
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsBadRequest(err):
		return r.reject(key, desired, akriv0.ReasonInvalidDevice, err), nil
	case apierrors.IsForbidden(err):
		// A quota or a terminating namespace: reports must not wait until a user resolves it.
		r.requeueAfter = forbiddenRetry
		return r.reject(key, desired, reasonNotPermitted, err), nil
	case err != nil:
		return merge.Outcome{}, err
	}
	if result.early {
		r.requeueAfter = r.wait
	}
	r.written = r.written || result.changed
	r.recordDevices(r.group.Configuration, name, result)
	return result.Outcome, nil
}

// decide returns the desired Instance, or the current one if a correction is not allowed yet.
func (r *groupRun) decide(current *akriv0.Instance, desired func(*akriv0.Instance) merge.Outcome) decision {
	result := decision{Outcome: desired(current)}
	result.changed = !equality.Semantic.DeepEqual(current, result.Instance)
	if result.changed && r.wait > 0 {
		result.Instance, result.changed, result.early = current, false, true
	}
	result.added, result.removed = changedNodes(current, result.Instance)
	result.created = current == nil && result.Instance != nil
	return result
}

// reject refuses the devices of the Instance. The other devices of the group are not affected.
func (r *groupRun) reject(key types.NamespacedName, desired func(*akriv0.Instance) merge.Outcome, reason string, err error) merge.Outcome {
	r.refused = true
	current := r.Cluster.Cached(key)
	outcome := desired(current)
	outcome.Instance = current
	for _, device := range outcome.Accepted {
		outcome.Refusals = append(outcome.Refusals, merge.Refusal{Device: device, Reason: reason, Message: err.Error()})
	}
	return outcome
}

// input collects the input of the merge.
func (r *Reconciler) input(ctx context.Context, group cluster.Group) (merge.Group, error) {
	configuration, err := r.Cluster.Configuration(ctx, group.Configuration)
	if err != nil {
		return merge.Group{}, err
	}
	input := merge.Group{
		Input: merge.Input{
			Name: group.ShortName, Configuration: configuration, Unavailable: map[string]bool{}, NotReady: map[string]bool{},
		},
		Instances: r.Cluster.InstancesIn(group),
	}
	if configuration == nil {
		return input, nil
	}
	input.Seen = r.Reports.Devices(group.Configuration, configuration.UID, group.ShortName)
	input.Absent = func(node string) bool {
		return r.Reports.Absent(group.Configuration, configuration.UID, group.ShortName, node)
	}
	var nodes []string
	for _, instance := range input.Instances {
		nodes = append(nodes, instance.Spec.Nodes...)
		nodes = append(nodes, slots.Holders(instance)...)
	}
	for _, device := range input.Seen {
		nodes = append(nodes, device.Node)
	}
	for _, node := range nodes {
		unavailable, remaining, err := r.Cluster.NodeUnavailable(ctx, node, r.Grace)
		if err != nil {
			return merge.Group{}, err
		}
		if unavailable {
			input.Unavailable[node] = true
		}
		if remaining > 0 {
			input.NotReady[node] = true
		}
	}
	return input, nil
}
