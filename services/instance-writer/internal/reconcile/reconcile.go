// Package reconcile writes Instances and the status of Configurations after changes of reports,
// Configurations, Nodes or Instances. It has no resync period, so an idle cluster sees no writes.
package reconcile

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/services/instance-writer/internal/batch"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/reporting"
	"akri.sh/services/instance-writer/internal/reports"
)

const (
	instanceWorkers = 16
	statusWorkers   = 4
)

// Options of a Reconciler.
type Options struct {
	Cluster *cluster.Cluster
	Reports *reports.Store
	Writer  *batch.Writer
	// NameTaken reports whether another Configuration has the name.
	NameTaken func(*akriv0.Configuration) bool
	// Grace is how long a node may be not ready before its devices are removed.
	Grace time.Duration
	// ReportGrace is how long a node may be without a report stream before it does not report. 0
	// means without a limit.
	ReportGrace time.Duration
	// DeviceChanges counts created and deleted Instances by Configuration and change (added,
	// removed).
	DeviceChanges *prometheus.CounterVec
	Log           *zap.Logger
}

// Reconciler writes Instances and the status of Configurations.
type Reconciler struct {
	Options

	// instances has groups, which may have no Instance yet.
	instances *queue[cluster.Group]
	statuses  *queue[types.NamespacedName]
	nodes     *queue[string]
	events    *queue[types.NamespacedName]

	instanceSchedule *schedule[cluster.Group]
	statusSchedule   *schedule[types.NamespacedName]
	conditionEvents  *kube.RateLimits
	deviceEvents     *kube.RateLimits
	newDevices       *kube.RateLimits // by node
	deviceChanges    *deviceChanges

	reporting *reporting.Observer
	// nodesChanged means that the status of Configurations may list other nodes.
	nodesChanged atomic.Bool
}

// New returns a Reconciler that observes changes now and writes during Run.
func New(options Options) *Reconciler {
	r := &Reconciler{
		Options:          options,
		instanceSchedule: newSchedule[cluster.Group](),
		statusSchedule:   newSchedule[types.NamespacedName](),
		conditionEvents:  kube.NewRateLimits(maxEventKeys, rate.Every(eventInterval), eventBurst),
		deviceEvents:     kube.NewRateLimits(maxEventKeys, rate.Every(eventInterval), eventBurst),
		newDevices:       kube.NewRateLimits(maxDeviceNodes, deviceRate, deviceBurst),
		deviceChanges:    newDeviceChanges(),
	}
	r.instances = newQueue("instance", options.Log, r.reconcileInstances)
	r.statuses = newQueue("status", options.Log, r.reconcileStatus)
	r.nodes = newQueue("node", options.Log, r.reconcileNode)
	r.events = newQueue("event", options.Log, r.reconcileEvents)
	r.reporting = reporting.New(reporting.Options{
		Grace: options.ReportGrace, Share: options.Cluster.ShareValue, Connected: options.Reports.Nodes, Failing: r.failing, Nodes: r.nodeNames,
		Observed: r.onReporting, Log: options.Log,
	})
	options.Cluster.Instances.OnEvent(r.onInstance)
	options.Cluster.Configurations.OnEvent(r.onConfiguration)
	options.Cluster.Nodes.OnEvent(r.onNode)
	return r
}

// Run reconciles until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { r.instances.run(ctx, instanceWorkers) })
	group.Go(func() { r.statuses.run(ctx, statusWorkers) })
	group.Go(func() { r.nodes.run(ctx, 1) })
	group.Go(func() { r.events.run(ctx, 1) })
	group.Go(func() { r.reporting.Run(ctx) })
	group.Wait()
}

// ReportingNodes returns the number of nodes with a report stream to any replica.
func (r *Reconciler) ReportingNodes() int { return r.reporting.Count() }

// Report stores a report. The Waiter waits until the API server holds its outcome. Report returns
// false if the node has a newer stream. The writes are part of the trace of ctx.
func (r *Reconciler) Report(
	ctx context.Context, stream *reports.Stream, node string, configuration types.NamespacedName, report *reports.Report,
) (Waiter, bool) {
	names, ok := r.Reports.Put(stream, configuration, report)
	if !ok {
		return Waiter{}, false
	}
	r.reporting.Reported(node)
	for _, instance := range r.instancesWith(node) {
		if cluster.Owner(instance) == configuration {
			names = append(names, akriv0.ShortInstanceName(instance.Name))
		}
	}
	slices.Sort(names)
	r.enqueueStatus(configuration)
	groups := groupsOf(configuration, slices.Compact(names))
	r.instanceSchedule.markNew(groups...)
	return r.instances.addAndWait(ctx, groups), true
}

func groupsOf(configuration types.NamespacedName, shortNames []string) []cluster.Group {
	groups := make([]cluster.Group, 0, len(shortNames))
	for _, name := range shortNames {
		groups = append(groups, cluster.Group{Configuration: configuration, ShortName: name})
	}
	return groups
}

// instancesWith returns the Instances that list the node or of which it holds a slot, with
// duplicates.
func (r *Reconciler) instancesWith(node string) []*akriv0.Instance {
	return append(r.Cluster.InstancesOn(node), r.Cluster.InstancesHeldBy(node)...)
}

// reconcileNode enqueues all Instances of the node now and when its grace period ends.
func (r *Reconciler) reconcileNode(ctx context.Context, name string) (time.Duration, error) {
	_, remaining, err := r.Cluster.NodeUnavailable(ctx, name, r.Grace)
	if err != nil {
		return 0, err
	}
	for _, instance := range r.instancesWith(name) {
		r.enqueueInstances(cluster.GroupOf(instance))
	}
	for configuration, names := range r.Reports.ShortNamesOn(name) {
		r.enqueueInstances(groupsOf(configuration, names)...)
	}
	return remaining, nil
}
