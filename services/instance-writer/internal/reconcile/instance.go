package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	// refusedRetry is the retry interval after the API server has forbidden a write, and of devices
	// beyond the limits of their node.
	refusedRetry       = 30 * time.Second
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
	run
	key    cluster.Group
	writer *batch.Writer
	// undecided means that no Instance is created, because it is not decided how Pods get devices.
	undecided bool
	// changes are those that were written.
	changes []change
}

// change is the outcome of the edit of an Instance.
type change struct {
	merge.Outcome
	name   string
	before *akriv0.Instance
	// changed means that the edit changes the Instance.
	changed bool
	// early means that it would change the Instance, but that this is a correction and too early.
	early bool
}

// reconcileInstances writes the Instances of the group that differ from their desired state.
func (r *Reconciler) reconcileInstances(ctx context.Context, key cluster.Group) (requeueAfter time.Duration, err error) {
	begun, err := r.instanceSchedule.begin(key)
	if err != nil {
		return 0, err
	}
	undecided := r.Cluster.Undecided()
	group, err := r.group(ctx, key)
	if err != nil {
		return r.instanceSchedule.end(key, begun, err)
	}

	run := &groupRun{run: begun, key: key, writer: r.Writer, undecided: undecided}
	excess := r.withinLimits(&group)
	refusals, err := run.write(ctx, group)
	refusals = append(refusals, excess...)
	run.interval = runInterval(group.Instances, run.written)
	if len(excess) > 0 {
		run.refused, run.requeueAfter = true, cmp.Or(run.requeueAfter, refusedRetry)
	}

	for _, change := range run.changes {
		r.recordDevices(key.Configuration, change)
	}
	if err == nil && r.Reports.SetRefusals(key.Configuration, key.ShortName, refusals) {
		r.enqueueStatus(key.Configuration)
	}
	return r.instanceSchedule.end(key, run.run, err)
}

// write writes the Instances of the group and returns the devices that are not part of one.
func (r *groupRun) write(ctx context.Context, group merge.GroupInput) ([]merge.Refusal, error) {
	short, err := r.edit(ctx, group, group.Name, false)
	if err == nil && len(short.Others) > 0 {
		// The cache may not show that the short name has become free, or is that of another device.
		short, err = r.edit(ctx, group, group.Name, true)
	}
	if err != nil {
		return nil, err
	}

	group.Short = short.Instance
	names, tooLong := group.LongNames(short.Others)
	refusals := slices.Concat(short.Refusals, tooLong)
	var errs []error
	for _, name := range names {
		long, err := r.edit(ctx, group, name, false)
		refusals, errs = append(refusals, long.Refusals...), append(errs, err)
	}
	return refusals, errors.Join(errs...)
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

// edit makes the Instance with the name the desired one, unless that is a correction and too early.
// If exact, the outcome is based on the API server and not only on a cache.
func (r *groupRun) edit(ctx context.Context, group merge.GroupInput, name string, exact bool) (merge.Outcome, error) {
	key := types.NamespacedName{Namespace: r.key.Configuration.Namespace, Name: name}
	_, result, err := batch.EditWithValue(ctx, r.writer, key, exact, func(current *akriv0.Instance) (*akriv0.Instance, change, error) {
		result := change{Outcome: group.Desired(name, current), name: name, before: current}
		if current == nil && r.undecided {
			result.Instance = nil
		}
		result.changed = !equality.Semantic.DeepEqual(current, result.Instance)
		if result.changed && r.wait > 0 {
			result.Instance, result.changed, result.early = current, false, true
		}
		return result.Instance, result, nil
	})

	switch {
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsBadRequest(err):
		return r.refuse(result, akriv0.ReasonInvalidDevice, err), nil
	case apierrors.IsForbidden(err):
		// A quota or a terminating namespace: reports must not wait until a user resolves it.
		r.requeueAfter = refusedRetry
		return r.refuse(result, reasonNotPermitted, err), nil
	case err != nil:
		return merge.Outcome{}, err
	case result.early:
		r.requeueAfter = r.wait
	case result.changed:
		r.written, r.changes = true, append(r.changes, result)
	}
	return result.Outcome, nil
}

// refuse refuses the devices of an Instance that the API server has refused, and keeps the previous
// one. The other devices of the group are not affected.
func (r *groupRun) refuse(result change, reason string, err error) merge.Outcome {
	r.refused = true
	outcome := result.Outcome
	outcome.Instance = result.before
	for _, device := range outcome.Accepted {
		outcome.Refusals = append(outcome.Refusals, merge.Refusal{Device: device, Reason: reason, Message: err.Error()})
	}
	return outcome
}

// group collects the input for the group.
func (r *Reconciler) group(ctx context.Context, key cluster.Group) (merge.GroupInput, error) {
	configuration, err := r.Cluster.Configuration(ctx, key.Configuration)
	if err != nil {
		return merge.GroupInput{}, err
	}
	group := merge.GroupInput{
		Input: merge.Input{
			Name: key.ShortName, Configuration: configuration, Unavailable: map[string]bool{}, NotReady: map[string]bool{},
		},
		Instances: r.Cluster.InstancesIn(key),
	}
	if configuration == nil {
		return group, nil
	}
	allowed := func(node string) bool { return r.Cluster.Allows(configuration, node) }
	group.Seen = slices.DeleteFunc(r.Reports.Devices(key.Configuration, configuration.UID, key.ShortName),
		func(device merge.Device) bool { return !allowed(device.Node) })
	group.Absent = func(node string) bool {
		return r.Reports.Absent(key.Configuration, configuration.UID, key.ShortName, node)
	}

	var nodes []string
	for _, instance := range group.Instances {
		nodes = append(nodes, instance.Spec.Nodes...)
		nodes = append(nodes, slots.Holders(instance)...)
	}
	for _, device := range group.Seen {
		nodes = append(nodes, device.Node)
	}
	for _, node := range nodes {
		if !allowed(node) {
			group.Unavailable[node] = true
			continue
		}
		unavailable, remaining, err := r.Cluster.NodeUnavailable(ctx, node, r.Grace)
		if err != nil {
			return merge.GroupInput{}, err
		}
		if unavailable {
			group.Unavailable[node] = true
		}
		if remaining > 0 {
			group.NotReady[node] = true
		}
	}
	return group, nil
}

// The devices that a node adds or changes are written at this rate, after a burst for a node that
// connects for the first time. Without it a node whose devices come and go in each report would
// cause as many writes as the API server can take.
const (
	deviceRate, deviceBurst = 20, 2000
	maxDeviceNodes          = 8192
)

// withinLimits removes the devices that exceed the limits of their node, and returns them. An
// Instance that lists the node stays, with its properties.
func (r *Reconciler) withinLimits(group *merge.GroupInput) (refusals []merge.Refusal) {
	accepted := group.Seen[:0:0]
	for _, device := range group.Seen {
		current := instanceFor(group.Instances, device)
		message := r.exceeded(device, current)
		if message == "" {
			accepted = append(accepted, device)
			continue
		}
		refusals = append(refusals, merge.Refusal{Device: device, Reason: akriv0.ReasonTooManyDevices, Message: message})
		if current != nil {
			device.Properties = merge.NewProperties(current.Spec.BrokerProperties)
			accepted = append(accepted, device)
		}
	}
	group.Seen = accepted
	return refusals
}

// exceeded returns a message about the limit of its node that a device exceeds, or nothing. current
// is the Instance that lists the node for it, or nil.
func (r *Reconciler) exceeded(device merge.Device, current *akriv0.Instance) string {
	switch {
	case current != nil && merge.NewProperties(current.Spec.BrokerProperties) == device.Properties:
		return ""
	case !r.fits(device, current):
		// The limits of reports do not suffice: Instances stay when the node sends an incomplete
		// report without their devices, or has no stream.
		return fmt.Sprintf("the Instances of node %s have the %d devices, or the %d MiB of ids and properties, that a node can have; "+
			"those of devices that do not exist are removed when all handlers of the node have answered",
			device.Node, cluster.MaxNodeDevices, cluster.MaxNodeBytes>>20)
	case (current == nil || len(current.Spec.Nodes) == 1) && !r.newDevices.Of(device.Node).Allow():
		// Properties that differ from those that another node reports are usually not written.
		return fmt.Sprintf("node %s has added or changed %d devices and goes on at more than %d a second; the others are tried again every %s",
			device.Node, deviceBurst, deviceRate, refusedRetry)
	}
	return ""
}

// fits reports whether the Instances of the node can grow by its device.
func (r *Reconciler) fits(device merge.Device, current *akriv0.Instance) bool {
	if current == nil {
		return r.Cluster.Fits(device.Node, 1, device.Size())
	}
	growth := device.Size() - cluster.InstanceBytes(current)
	return growth <= 0 || r.Cluster.Fits(device.Node, 0, growth)
}

// instanceFor returns the Instance that lists the node of the device for it, or nil. Instances of
// upstream Akri do not have the id of their device.
func instanceFor(instances []*akriv0.Instance, device merge.Device) *akriv0.Instance {
	for _, instance := range instances {
		id := instance.Annotations[akriv0.DeviceIDAnnotation]
		if (id == device.ID || id == "") && slices.Contains(instance.Spec.Nodes, device.Node) {
			return instance
		}
	}
	return nil
}
