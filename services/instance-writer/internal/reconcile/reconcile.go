// Package reconcile makes Instances and Configuration status what reports, Configurations and Nodes
// say they should be, whenever one of these changes. Nothing is done for the sake of doing it
// again: an idle cluster sees no write.
package reconcile

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/editor"
	"akri.sh/services/instance-writer/internal/merge"
	"akri.sh/services/instance-writer/internal/reports"
	"akri.sh/services/instance-writer/internal/slots"
	"akri.sh/services/instance-writer/internal/work"
)

const (
	instanceWorkers = 16
	statusWorkers   = 4

	whenForbidden      = 30 * time.Second
	reasonNotPermitted = "NotPermitted"
)

// Key is an Instance, that may not exist yet, of a Configuration.
type Key struct {
	Configuration types.NamespacedName
	Instance      string
}

// Config of a Reconciler.
type Config struct {
	Cluster *cluster.Cluster
	Reports *reports.Store
	Editor  *editor.Editor
	// Grace is how long a node may be not ready before its devices leave.
	Grace time.Duration
	Log   *zap.Logger
}

// Reconciler is the part that acts.
type Reconciler struct {
	Config

	instances *work.Queue[Key]
	statuses  *work.Queue[types.NamespacedName]
	nodes     *work.Queue[string]
	pace      pace
	// calm of the two queues that write.
	calm       *calm[Key]
	statusCalm *calm[types.NamespacedName]
}

// New returns a Reconciler that hears of changes at once and acts when it runs.
func New(config Config) (*Reconciler, error) {
	r := &Reconciler{Config: config, pace: pace{last: map[types.NamespacedName]time.Time{}}, calm: newCalm[Key](), statusCalm: newCalm[types.NamespacedName]()}
	r.instances = work.New("instance", config.Log, r.instance)
	r.statuses = work.New("status", config.Log, r.status)
	r.nodes = work.New("node", config.Log, r.node)
	err := config.Cluster.OnChange(cluster.Changes{Instance: r.onInstance, Configuration: r.onConfiguration, Node: r.onNode})
	return r, err
}

// Run acts until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return r.instances.Run(ctx, instanceWorkers) })
	group.Go(func() error { return r.statuses.Run(ctx, statusWorkers) })
	group.Go(func() error { return r.nodes.Run(ctx, 1) })
	return group.Wait()
}

// Report takes a node's report in; the answer waits until the API server holds its outcome. False:
// a newer stream of the node has taken over.
func (r *Reconciler) Report(stream *reports.Stream, node string, configuration types.NamespacedName, report *reports.Report) (work.Asked, bool) {
	names, ok := r.Reports.Put(stream, configuration, report)
	if !ok {
		return work.Asked{}, false
	}
	for _, instance := range r.Cluster.InstancesOf(configuration) {
		if _, seen := report.Devices[instance.Name]; !seen && concerns(instance, node) {
			names = append(names, instance.Name)
		}
	}
	slices.Sort(names)
	r.lookAtStatus(configuration)
	asked := keys(configuration, slices.Compact(names))
	r.calm.hear(asked...)
	return r.instances.Ask(asked), true
}

func keys(configuration types.NamespacedName, names []string) []Key {
	all := make([]Key, 0, len(names))
	for _, name := range names {
		all = append(all, Key{configuration, name})
	}
	return all
}

// instance makes one Instance what it should be.
func (r *Reconciler) instance(ctx context.Context, key Key) (time.Duration, error) {
	name := types.NamespacedName{Namespace: key.Configuration.Namespace, Name: key.Instance}
	in, err := r.input(ctx, key, name)
	if err != nil {
		return 0, err
	}
	var outcome merge.Outcome
	var wait time.Duration
	news, insists := r.calm.take(key), false
	_, err = r.Editor.Edit(ctx, name, editor.Edit{Apply: func(current *akriv0.Instance) (*akriv0.Instance, error) {
		in.Current = current
		if current == nil && in.Configuration == nil {
			outcome = merge.Outcome{}
		} else {
			outcome = merge.Desired(in)
		}
		insists = !news && !equality.Semantic.DeepEqual(current, outcome.Instance)
		if wait = r.calm.left(key); insists && wait > 0 {
			return current, nil
		}
		wait = 0
		return outcome.Instance, nil
	}})
	if err != nil && news {
		r.calm.hear(key)
	}
	if err == nil && insists && wait == 0 {
		r.calm.insist(key)
	}
	refusals, again := outcome.Refusals, wait
	switch {
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsBadRequest(err):
		refusals = refused(in.Seen, akriv0.ReasonInvalidDevice, err)
	case apierrors.IsForbidden(err):
		// A quota, or a namespace that ends: a person can mend it. Others must not wait for that.
		refusals, again = refused(in.Seen, reasonNotPermitted, err), whenForbidden
	case err != nil:
		return 0, err
	}
	if r.Reports.SetRefusals(key.Configuration, key.Instance, refusals) {
		r.lookAtStatus(key.Configuration)
	}
	return again, nil
}

// look looks at the Instance with news.
func (r *Reconciler) look(key Key) {
	r.calm.hear(key)
	r.instances.Add(key)
}

func (r *Reconciler) lookAtStatus(configuration types.NamespacedName) {
	r.statusCalm.hear(configuration)
	r.statuses.Add(configuration)
}

// concerns tells whether the Instance lists the node, or the node has a slot of it.
func concerns(instance *akriv0.Instance, node string) bool {
	return slices.Contains(instance.Spec.Nodes, node) || slices.Contains(slots.Holders(instance), node)
}

// refused are devices that the API server does not take.
func refused(devices []merge.Device, reason string, err error) []merge.Refusal {
	var all []merge.Refusal
	for _, device := range devices {
		all = append(all, merge.Refusal{Device: device, Reason: reason, Message: err.Error()})
	}
	return all
}

func (r *Reconciler) input(ctx context.Context, key Key, name types.NamespacedName) (merge.Input, error) {
	configuration, err := r.Cluster.Configuration(ctx, key.Configuration)
	if err != nil {
		return merge.Input{}, err
	}
	in := merge.Input{Name: key.Instance, Configuration: configuration, Out: map[string]bool{}}
	if configuration == nil {
		return in, nil
	}
	in.Seen, in.Absent = r.Reports.Of(key.Configuration, configuration.UID, key.Instance)
	var nodes []string
	if current := r.Cluster.Cached(name); current != nil {
		nodes = append(nodes, current.Spec.Nodes...)
		nodes = append(nodes, slots.Holders(current)...)
	}
	for _, device := range in.Seen {
		nodes = append(nodes, device.Node)
	}
	for _, node := range nodes {
		out, _, err := r.Cluster.NodeOut(ctx, node, r.Grace, time.Now())
		if err != nil {
			return merge.Input{}, err
		}
		in.Out[node] = out
	}
	return in, nil
}

// node looks at everything that the node is part of, and again when its grace ends.
func (r *Reconciler) node(ctx context.Context, name string) (time.Duration, error) {
	_, left, err := r.Cluster.NodeOut(ctx, name, r.Grace, time.Now())
	if err != nil {
		return 0, err
	}
	for _, instance := range append(r.Cluster.InstancesOn(name), r.Cluster.InstancesHeldBy(name)...) {
		r.look(Key{cluster.Owner(instance), instance.Name})
	}
	for configuration, names := range r.Reports.By(name) {
		for _, key := range keys(configuration, names) {
			r.look(key)
		}
	}
	return left, nil
}
