package instancewriter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	instancev1 "akri.sh/proto/akri/instance/v1"
	instancewriter "akri.sh/services/instance-writer"
)

// A node whose streams end keeps its Instances. The replicas agree that it does not report, and so
// does a replica that starts later.
func TestNodeStopsReporting(t *testing.T) {
	kubetest.NoLeaks(t)
	createLease(t)
	f := newFixture(t, 1, 2)
	observing := func() *replica {
		return startWith(t, instancewriter.Config{
			Flags: kube.Flags{REST: api.Config()}, NodeGrace: grace, ReportGrace: 1200 * time.Millisecond, Namespace: namespace,
		}, zap.NewNop())
	}
	first, second := observing(), observing()
	streams := f.reportShared("foo", first, second)
	condition := func(status metav1.ConditionStatus) *metav1.Condition {
		var found *metav1.Condition
		f.eventually("NodesReporting", func() bool {
			found = meta.FindStatusCondition(f.status().Conditions, akriv0.ConditionNodesReporting)
			return found != nil && found.Status == status
		})
		return found
	}
	condition(metav1.ConditionTrue)
	f.eventually("both nodes", func() bool { return len(f.status().Nodes) == 2 })

	require.NoError(t, streams[1].CloseSend())
	require.Contains(t, condition(metav1.ConditionFalse).Message, f.nodes[1]+": no report since ")
	lost := f.status()
	require.Equal(t, "1 device on 2 nodes", meta.FindStatusCondition(lost.Conditions, akriv0.ConditionDevicesFound).Message)
	require.NotEmpty(t, lost.Nodes[0].Handlers)
	require.Empty(t, lost.Nodes[1].Handlers)
	require.EqualValues(t, 1, lost.Nodes[1].Devices)
	require.Equal(t, f.nodes, f.get(f.instanceName("foo")).Spec.Nodes)

	third := observing()
	second.kill()
	first.kill()
	f.eventually("no node reports", func() bool { return f.status().Nodes[0].NotReportingSince != nil })
	require.Equal(t, lost.Nodes[1], f.status().Nodes[1])
	require.Equal(t, akriv0.ReasonNoReport, meta.FindStatusCondition(f.status().Conditions, akriv0.ConditionDetailsAccepted).Reason)
	require.True(t, meta.IsStatusConditionTrue(f.status().Conditions, akriv0.ConditionReady))

	f.reportShared("foo", third)
	condition(metav1.ConditionTrue)
	for _, node := range f.status().Nodes {
		require.NotEmpty(t, node.Handlers)
	}
	f.eventually("Event", func() bool { return len(f.events(akriv0.ReasonAsExpected)) > 0 })
	require.Len(t, f.events(akriv0.ReasonAsExpected), 1)
	require.Len(t, f.events(akriv0.ReasonNodeNotReporting), 1)
}

// createLease creates the Lease of the chart until the test ends.
func createLease(t *testing.T) {
	t.Helper()
	leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
	client, err := kube.NewClient[coordinationv1.Lease, coordinationv1.LeaseList](api.Config(), leases)
	require.NoError(t, err)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "akri-instance-writer", Namespace: namespace}}
	_, err = client.In(namespace).Create(t.Context(), lease, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = client.In(namespace).Delete(context.WithoutCancel(t.Context()), lease.Name, metav1.DeleteOptions{})
	})
}

// Two replicas write one status of a cluster that has more nodes than the status lists. Each has
// the reports of other nodes.
func TestStatusOfManyNodes(t *testing.T) {
	kubetest.NoLeaks(t)
	createLease(t)
	f := newFixture(t, 1, 40)
	config := instancewriter.Config{
		Flags: kube.Flags{REST: api.Config()}, NodeGrace: grace, ReportGrace: 3 * time.Second, Namespace: namespace,
	}
	replicas := []*replica{startWith(t, config, zap.NewNop()), startWith(t, config, zap.NewNop())}
	var streams []*stream
	report := func(i int, problems ...*instancev1.Problem) {
		request := f.newReport(f.nodes[i])
		if request.Problems = problems; len(problems) > 0 {
			request.Handlers = nil
		}
		require.Empty(t, streams[i].send(request))
	}
	missing := &instancev1.Problem{Reason: akriv0.ReasonHandlerNotRegistered, Message: "no udev"}
	for i := range f.nodes {
		streams = append(streams, openReports(f, replicas[i%2]))
		report(i, missing)
	}
	registered := func(status metav1.ConditionStatus, message string) akriv0.ConfigurationStatus {
		t.Helper()
		var got akriv0.ConfigurationStatus
		f.eventually(message, func() bool {
			got = f.status()
			condition := meta.FindStatusCondition(got.Conditions, akriv0.ConditionHandlerRegistered)
			return condition != nil && condition.Status == status && strings.Contains(condition.Message, message)
		})
		return got
	}
	got := registered(metav1.ConditionFalse, " and others: no udev")
	f.eventually("all nodes", func() bool { got = f.status(); return got.NodesReporting == 40 && len(got.Nodes) == 32 })

	// The handler works on one node. The other replica reads that in the Lease.
	report(0)
	registered(metav1.ConditionTrue, "the Discovery Handler is registered; problems: ")
	for i := 2; i < 40; i += 2 {
		report(i)
	}
	f.eventually("the nodes of one replica", func() bool { return len(f.status().Nodes) == 20 })
	for i := 1; i < 40; i += 2 {
		report(i)
	}
	f.eventually("no problem", func() bool { return len(f.status().Nodes) == 0 })
	require.EqualValues(t, 40, f.status().NodesReporting)
}
