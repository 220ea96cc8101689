package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/merge"
	"akri.sh/services/instance-writer/internal/reports"
	"akri.sh/services/instance-writer/internal/slots"
	"akri.sh/services/instance-writer/internal/status"
)

// minStatusInterval is the statusInterval of a cluster with up to a hundred nodes.
const minStatusInterval = time.Second

// reconcileStatus writes the status of one Configuration if it differs from the desired status.
func (r *Reconciler) reconcileStatus(ctx context.Context, key types.NamespacedName) (requeueAfter time.Duration, err error) {
	run, err := r.statusSchedule.begin(key)
	if err != nil {
		return 0, err
	}
	err = r.writeStatus(ctx, key, &run)
	return r.statusSchedule.end(key, run, err)
}

func (r *Reconciler) writeStatus(ctx context.Context, key types.NamespacedName, run *run) error {
	configuration, err := r.Cluster.Configuration(ctx, key)
	if err != nil || configuration == nil || configuration.DeletionTimestamp != nil {
		return err
	}
	desired, err := r.desiredStatus(ctx, configuration)
	if err != nil {
		return err
	}
	interval := r.statusInterval()

	switch {
	case equality.Semantic.DeepEqual(configuration.Status, desired):
		if interval > minStatusInterval {
			run.interval = interval // computing the status of many nodes takes time, too
		}
		return nil
	case run.wait > 0:
		run.requeueAfter = run.wait
		return nil
	}

	updated := configuration.DeepCopy()
	updated.Status = desired
	if err := r.Cluster.UpdateStatus(ctx, updated); err != nil {
		return err
	}
	run.written, run.interval = true, interval
	r.createConditionEvents(ctx, configuration, desired.Conditions)
	return nil
}

// statusInterval returns the minimum time between two writes of the status of one Configuration.
func (r *Reconciler) statusInterval() time.Duration {
	return minStatusInterval * time.Duration(max(1, len(r.Cluster.Nodes.List())/100))
}

// maxDifferingNodes is the number of nodes that a message of PropertiesAgree lists.
const maxDifferingNodes = 5

func (r *Reconciler) desiredStatus(ctx context.Context, configuration *akriv0.Configuration) (akriv0.ConfigurationStatus, error) {
	key := cluster.Key(configuration)
	instances := r.Cluster.InstancesOf(key)
	input := status.Input{
		Configuration: configuration, NameTaken: r.NameTaken(configuration), Undecided: r.Cluster.Undecided(),
		Instances: len(instances), MalformedSlots: malformedSlots(instances),
		DifferingProperties: differingProperties(instances),
		Nodes:               r.allowedNodes(configuration), NotReporting: r.reporting.NotReporting(), DevicesOn: r.devicesOn(key), Now: time.Now(),
		Unlisted: status.Unlisted{
			Reporting: r.reporting.Reporting, Settled: r.reporting.Settled(), WithDevices: withDevices(instances),
			Works: status.AllWorks &^ status.Works(r.reporting.FailingElsewhere(string(configuration.UID))),
		},
	}
	for node, report := range r.Reports.ByNode(key, configuration.UID) {
		input.Reports = append(input.Reports, r.nodeReport(configuration, node, report))
	}
	gone, err := r.goneNodes(ctx, input)
	if err != nil {
		return akriv0.ConfigurationStatus{}, err
	}
	input.Gone = func(node string) bool { return gone[node] }
	return status.Desired(input), nil
}

// devicesOn returns a function that returns the number of Instances of the Configuration that list
// a node.
func (r *Reconciler) devicesOn(configuration types.NamespacedName) func(node string) int {
	return func(node string) int {
		count := 0
		for _, instance := range r.Cluster.InstancesOn(node) {
			if cluster.Owner(instance) == configuration {
				count++
			}
		}
		return count
	}
}

// withDevices returns the number of nodes that the Instances list.
func withDevices(instances []*akriv0.Instance) int {
	nodes := sets.New[string]()
	for _, instance := range instances {
		nodes.Insert(instance.Spec.Nodes...)
	}
	return nodes.Len()
}

// failing returns what works on no node with a stream to this replica, by uid of the Configuration.
func (r *Reconciler) failing() map[string]uint8 {
	failing := map[string]uint8{}
	for _, configuration := range r.Cluster.Configurations.List() {
		var works status.Works
		key := cluster.Key(configuration)
		for node, report := range r.Reports.ByNode(key, configuration.UID) {
			works |= status.WorksOn(r.nodeReport(configuration, node, report).NodeStatus)
		}
		if works != status.AllWorks {
			failing[string(configuration.UID)] = uint8(status.AllWorks &^ works)
		}
	}
	return failing
}

// malformedSlots returns the messages in a fixed order, so that replicas compute the same status.
func malformedSlots(instances []*akriv0.Instance) []string {
	var messages []string
	for _, instance := range instances {
		messages = append(messages, slots.MalformedMessages(instance)...)
	}
	slices.Sort(messages)
	return messages
}

// differingProperties returns the messages in a fixed order.
func differingProperties(instances []*akriv0.Instance) []string {
	var messages []string
	for _, instance := range instances {
		if nodes := merge.DifferingNodes(instance); len(nodes) > 0 {
			listed := strings.Join(nodes[:min(len(nodes), maxDifferingNodes)], ", ")
			if len(nodes) > maxDifferingNodes {
				listed += " and others"
			}
			messages = append(messages, instance.Name+" ("+listed+")")
		}
	}
	slices.Sort(messages)
	return messages
}

// goneNodes returns which nodes of the reports and the current status have no entry: those that no
// longer exist, and those that the Configuration does not allow, unless they report devices.
func (r *Reconciler) goneNodes(ctx context.Context, input status.Input) (map[string]bool, error) {
	gone := map[string]bool{}
	for _, report := range input.Reports {
		gone[report.Name] = false
	}
	for _, node := range input.Configuration.Status.Nodes {
		gone[node.Name] = false
	}
	for name := range gone {
		exists, err := r.Cluster.NodeExists(ctx, name)
		if err != nil {
			return nil, err
		}
		gone[name] = !exists || !r.Cluster.Allows(input.Configuration, name) && !reportsDevices(input, name)
	}
	return gone, nil
}

// allowedNodes returns the Nodes that the Configuration allows.
func (r *Reconciler) allowedNodes(configuration *akriv0.Configuration) []*corev1.Node {
	return slices.DeleteFunc(slices.Clone(r.Cluster.Nodes.List()), func(node *corev1.Node) bool {
		return !configuration.Spec.Nodes.Allows(node.Name, node.Labels)
	})
}

// nodeReport returns the report of a node, with a problem for each refused device.
func (r *Reconciler) nodeReport(configuration *akriv0.Configuration, node string, report *reports.Report) status.NodeReport {
	if !r.Cluster.Allows(configuration, node) {
		return notAllowedReport(node, report)
	}
	problems := slices.Clone(report.Problems)
	for _, refusal := range r.Reports.Refusals(node, cluster.Key(configuration)) {
		problems = append(problems, akriv0.Problem{Reason: refusal.Reason, Message: refusal.Message})
	}
	entry := status.Node(node, len(report.Devices), report.Handlers, problems)
	if len(problems) > 0 {
		entry.ProblemsSince = &metav1.Time{Time: report.ProblemsSince.Truncate(time.Second)}
	}
	return status.NodeReport{
		NodeStatus: entry,
		Complete:   report.Complete, Answered: report.Answered, Generation: report.Generation,
	}
}

// notAllowedReport returns what the status has about a node that the Configuration does not allow:
// nothing that the node has chosen.
func notAllowedReport(node string, report *reports.Report) status.NodeReport {
	refused := status.NodeReport{NodeStatus: status.Node(node, 0, nil, nil), Complete: true, Generation: report.Generation}
	if len(report.Devices) > 0 {
		refused.Problems = []akriv0.Problem{{Reason: akriv0.ReasonNodeNotAllowed, Message: fmt.Sprintf(
			"devices on node %q are not accepted: spec.nodes does not allow the node", node)}}
		refused.ProblemsSince = &metav1.Time{Time: report.ProblemsSince.Truncate(time.Second)}
	}
	return refused
}

// reportsDevices reports whether a node that the Configuration does not allow reports devices of
// it. If the node reports to another replica, that replica has written its entry.
func reportsDevices(input status.Input, node string) bool {
	notAllowed := func(n akriv0.NodeStatus) bool {
		return n.Name == node && slices.ContainsFunc(n.Problems, func(p akriv0.Problem) bool { return p.Reason == akriv0.ReasonNodeNotAllowed })
	}
	for _, report := range input.Reports {
		if report.Name == node {
			return notAllowed(report.NodeStatus)
		}
	}
	_, lost := input.NotReporting[node]
	return !lost && slices.ContainsFunc(input.Configuration.Status.Nodes, notAllowed)
}
