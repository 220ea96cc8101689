package status_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/status"
)

const (
	maxBytes  = 16 << 10
	maxListed = 32
)

func problem(reason, message string) akriv0.Problem {
	return akriv0.Problem{Reason: reason, Message: message}
}

// replicas are two replicas with the streams of all nodes of a cluster.
type replicas struct {
	configuration *akriv0.Configuration
	nodes         []*corev1.Node
	reports       [2][]status.NodeReport
	unsettled     bool
	now           time.Time
}

func newReplicas(count int) *replicas {
	r := &replicas{configuration: &akriv0.Configuration{}, now: early}
	for i := range count {
		r.nodes = append(r.nodes, kubernetesNode(fmt.Sprintf("node-%04d", i)))
		r.report(i, active)
	}
	return r
}

// report sets the report of a node.
func (r *replicas) report(i int, handlers []akriv0.HandlerStatus, problems ...akriv0.Problem) {
	entry := status.Node(r.nodes[i].Name, 1, handlers, problems)
	reports := &r.reports[i%2]
	if len(*reports) <= i/2 {
		*reports = append(*reports, status.NodeReport{Complete: true})
	}
	report := &(*reports)[i/2]
	if len(problems) > 0 {
		entry.ProblemsSince = &metav1.Time{Time: r.now}
	}
	if slices.EqualFunc(problems, report.Problems, akriv0.Problem.Same) {
		entry.ProblemsSince = report.ProblemsSince
	}
	report.NodeStatus = entry
}

func (r *replicas) works(replica int) status.Works {
	var works status.Works
	for _, report := range r.reports[replica] {
		works |= status.WorksOn(report.NodeStatus)
	}
	return works
}

func (r *replicas) desired(replica int) akriv0.ConfigurationStatus {
	return status.Desired(status.Input{
		Configuration: r.configuration, Instances: len(r.nodes), Nodes: r.nodes, Reports: r.reports[replica],
		Gone: never, Now: r.now, DevicesOn: func(string) int { return 1 },
		Unlisted: status.Unlisted{
			Reporting: func(string) bool { return true }, Settled: !r.unsettled, Works: r.works(1 - replica), WithDevices: len(r.nodes),
		},
	})
}

// write writes the status of each replica twice and requires that the replicas agree then.
func (r *replicas) write(t require.TestingT, order ...int) akriv0.ConfigurationStatus {
	for _, replica := range append(order, order...) {
		r.configuration.Status = r.desired(replica)
		requireBounded(t, r.configuration.Status)
	}
	for replica := range r.reports {
		require.Equal(t, r.configuration.Status, r.desired(replica))
	}
	return r.configuration.Status
}

func requireBounded(t require.TestingT, status akriv0.ConfigurationStatus) {
	encoded, err := json.Marshal(status)
	require.NoError(t, err)
	require.LessOrEqual(t, len(encoded), maxBytes)
	require.LessOrEqual(t, len(status.Nodes), maxListed)
}

func condition(status akriv0.ConfigurationStatus, name string) *metav1.Condition {
	return meta.FindStatusCondition(status.Conditions, name)
}

func TestStatusOfManyNodes(t *testing.T) {
	r := newReplicas(1000)
	got := r.write(t, 0, 1)
	require.Empty(t, got.Nodes)
	require.EqualValues(t, 1000, got.NodesReporting)
	require.Equal(t, "1000 devices on 1000 nodes", condition(got, akriv0.ConditionDevicesFound).Message)
	require.Equal(t, "reports from 1000 nodes", condition(got, akriv0.ConditionNodesReporting).Message)

	for i := range 3 {
		r.now = r.now.Add(time.Minute)
		r.report(i, nil, problem("HandlerNotRegistered", fmt.Sprintf("no udev on node %q", r.nodes[i].Name)))
	}
	got = r.write(t, 1, 0)
	require.Equal(t, []string{"node-0002", "node-0001", "node-0000"}, listed(got), "the most recent problem first")
	require.Equal(t, "the Discovery Handler is registered; problems: node-0002, node-0001, node-0000: no udev",
		condition(got, akriv0.ConditionHandlerRegistered).Message)
	require.Equal(t, metav1.ConditionTrue, condition(got, akriv0.ConditionHandlerRegistered).Status)

	// All nodes but one, whose report only one replica has.
	for i := range 999 {
		r.report(i, nil, problem("HandlerNotRegistered", "no udev"))
	}
	got = r.write(t, 0, 1)
	require.Len(t, got.Nodes, maxListed)
	require.Equal(t, metav1.ConditionTrue, condition(got, akriv0.ConditionHandlerRegistered).Status)
	r.report(999, nil, problem("HandlerNotRegistered", "no udev"))
	got = r.write(t, 0, 1)
	require.Equal(t, metav1.ConditionFalse, condition(got, akriv0.ConditionHandlerRegistered).Status)
	require.Equal(t, "node-0000, node-0001, node-0002, node-0003, node-0004 and others: no udev",
		condition(got, akriv0.ConditionHandlerRegistered).Message)

	for i := range r.nodes {
		r.report(i, active)
	}
	got = r.write(t, 1, 0)
	require.Empty(t, got.Nodes)
	require.Equal(t, metav1.ConditionTrue, condition(got, akriv0.ConditionHandlerRegistered).Status)
}

func listed(status akriv0.ConfigurationStatus) []string {
	var names []string
	for _, node := range status.Nodes {
		names = append(names, node.Name)
	}
	return names
}

// A replica that has just started has no nodes of other replicas and few of its own.
func TestReplicaOfManyNodesStarts(t *testing.T) {
	r := newReplicas(100)
	r.report(1, nil, problem("HandlerNotRegistered", "no udev"))
	before := r.write(t, 0, 1)
	started := &replicas{configuration: r.configuration, nodes: r.nodes, now: r.now, unsettled: true}
	require.Equal(t, before, started.desired(0))
	started.reports[0] = r.reports[0][:3]
	require.Equal(t, before, started.desired(0))
}

// A cluster that grows or shrinks over the limit lists other nodes.
func TestListedNodes(t *testing.T) {
	r := newReplicas(maxListed)
	r.report(7, active, problem("InvalidDevice", "too long"))
	require.Len(t, r.write(t, 0, 1).Nodes, maxListed)
	r.nodes = append(r.nodes, kubernetesNode("node-9999"))
	require.Equal(t, []string{"node-0007"}, listed(r.write(t, 0, 1)))
	r.nodes = r.nodes[:maxListed]
	require.Len(t, r.write(t, 0, 1).Nodes, maxListed)
}

func TestLongMessagesFit(t *testing.T) {
	long := strings.Repeat("kubectl create role ", 40)
	r := newReplicas(maxListed)
	for i, node := range r.nodes {
		r.report(i, active, problem("PropertyForbidden", fmt.Sprintf("forbidden on node %q: %s", node.Name, long)))
	}
	got := r.write(t, 0, 1)
	require.Len(t, got.Nodes, maxListed)
	require.Contains(t, condition(got, akriv0.ConditionDetailsAccepted).Message, "forbidden: "+long, "one message for all")
	require.NotEmpty(t, got.Nodes[0].Problems[0].Message)
	require.Equal(t, "PropertyForbidden", got.Nodes[1].Problems[0].Reason)

}

// The status is bounded even if hostile handlers report on all nodes. Replicas may then disagree on
// the texts.
func TestHostileMessagesFit(t *testing.T) {
	r := newReplicas(maxListed)
	for i := range r.nodes {
		var problems []akriv0.Problem
		for k := range 20 {
			problems = append(problems, problem("InvalidDevice", fmt.Sprintf("%d/%d %s", i, k, strings.Repeat("ä\n", 2000))))
		}
		r.report(i, active, problems...)
	}
	for _, replica := range []int{0, 1, 0, 1} {
		r.configuration.Status = r.desired(replica)
		requireBounded(t, r.configuration.Status)
	}
	require.Len(t, r.configuration.Status.Nodes, maxListed)
	require.Len(t, r.configuration.Status.Nodes[0].Problems, 1)
}

// TestHostileNodesDisplaceNoOthers lets some nodes, the first by name, fill each text that a node
// can choose. The entries of all others stay as they are.
func TestHostileNodesDisplaceNoOthers(t *testing.T) {
	long := strings.Repeat(`<ä"`, 700)
	hostile := problem("Hostile", long)
	hostile.Evidence = []string{long, long}
	hostile.Subject = &akriv0.Subject{Kind: long, Namespace: long, Name: long}
	hostile.Wait = &akriv0.Wait{Awaited: long, Then: long}
	for _, count := range []int{1, 3} {
		r := newReplicas(maxListed)
		for i := range r.nodes {
			r.report(i, active)
		}
		var honest []akriv0.NodeStatus
		for _, replica := range []int{0, 1} {
			r.configuration.Status = r.desired(replica)
			honest = r.configuration.Status.Nodes[count:]
		}
		require.Len(t, honest, maxListed-count)

		for i := range count {
			var handlers []akriv0.HandlerStatus
			for range 16 {
				handlers = append(handlers, akriv0.HandlerStatus{Name: long, Endpoint: long, Status: akriv0.HandlerActive})
			}
			r.report(i, handlers, hostile, hostile, hostile)
		}
		for _, replica := range []int{0, 1, 0, 1} {
			r.configuration.Status = r.desired(replica)
			requireBounded(t, r.configuration.Status)
			require.Len(t, r.configuration.Status.Nodes, maxListed)
			require.Equal(t, honest, r.configuration.Status.Nodes[count:])
		}
	}
}

// Conditions of other writers stay as they are, whatever their size.
func TestOtherConditionsStay(t *testing.T) {
	r := newReplicas(2)
	r.report(0, active, problem("InvalidDevice", strings.Repeat("x", 1000)))
	for i := range 100 {
		r.configuration.Status.Conditions = append(r.configuration.Status.Conditions, metav1.Condition{
			Type: fmt.Sprintf("Other%d", i), Status: metav1.ConditionTrue, Reason: "Other", Message: strings.Repeat("y", 1000),
		})
	}
	others := slices.Clone(r.configuration.Status.Conditions)
	got := r.desired(0)
	require.Equal(t, others, got.Conditions[:len(others)])
	require.Equal(t, metav1.ConditionFalse, condition(got, akriv0.ConditionDevicesAccepted).Status)
	require.Len(t, got.Conditions, len(others)+8)
}

// Replicas agree in any order, with any problems.
func TestReplicasOfManyNodesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newReplicas(rapid.SampledFrom([]int{20, 40, 80}).Draw(t, "nodes"))
		reasons := []string{"", "", "HandlerNotRegistered", "DiscoverFailed", "InvalidDetails"}
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			r.now = r.now.Add(time.Minute)
			common := rapid.SampledFrom(reasons).Draw(t, "common")
			for i := range r.nodes {
				reason := common
				if rapid.IntRange(0, 9).Draw(t, "differs") == 0 {
					reason = rapid.SampledFrom(reasons).Draw(t, "reason")
				}
				switch reason {
				case "":
					r.report(i, active)
				case "HandlerNotRegistered":
					r.report(i, nil, problem(reason, "about "+reason))
				default:
					r.report(i, active, problem(reason, "about "+reason))
				}
			}
			r.write(t, rapid.Permutation([]int{0, 1}).Draw(t, "order")...)
		}
	})
}
