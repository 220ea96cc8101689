package verdicts

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/kube"
	"akri.sh/services/broker-controller/internal/cluster"
)

const (
	namespace = "default"
	key       = namespace + "/camera"
	device    = "camera-8120fe"
	node      = "node-a"
)

// fixture is an Observer of a cluster with a device that works and without brokers.
type fixture struct {
	testing.TB
	*Observer
	changed []string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	clients, err := cluster.NewClients(&rest.Config{})
	require.NoError(t, err)
	counts := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "verdicts"}, []string{"subject", "state"})
	f := &fixture{TB: t, Observer: New(clients, cluster.NewCache(clients, "akri", "akri"), nil, counts, zap.NewNop())}
	created := metav1.NewTime(time.Now().Add(-time.Hour))
	add(f, f.cache.Configurations, &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "camera", CreationTimestamp: created},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{Name: "onvif"}},
		Status: akriv0.ConfigurationStatus{NodesReporting: 1, Conditions: []metav1.Condition{
			{Type: akriv0.ConditionHandlerRegistered, Status: metav1.ConditionTrue},
			{Type: akriv0.ConditionDetailsAccepted, Status: metav1.ConditionTrue},
			{Type: akriv0.ConditionDevicesFound, Status: metav1.ConditionTrue},
		}},
	})
	add(f, f.cache.Instances, &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: device, CreationTimestamp: created},
		Spec:       akriv0.InstanceSpec{ConfigurationName: "camera", Capacity: 1, Nodes: []string{node}},
	})
	f.setNode(corev1.ConditionTrue, 1)
	own := f.cache.Installation[0]
	labels := map[string]string{explain.PartOfLabel: explain.PartOf, explain.ComponentLabel: explain.InstanceWriter}
	add(f, own.Deployments, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "akri", Name: "akri-instance-writer", Labels: labels},
		Status:     appsv1.DeploymentStatus{ReadyReplicas: 1},
	})
	return f
}

func add[T kube.Object](f *fixture, informer *kube.Informer[T], object T) {
	f.Helper()
	require.NoError(f, informer.GetStore().Update(object))
}

func (f *fixture) setNode(ready corev1.ConditionStatus, allocatable int64) {
	f.Helper()
	add(f, f.cache.Nodes, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
			Allocatable: corev1.ResourceList{corev1.ResourceName(akriv0.ResourceName(device)): *resource.NewQuantity(allocatable, resource.DecimalSI)},
		},
	})
}

// requireDevices evaluates, and requires a state and a part of the message.
func (f *fixture) requireDevices(state explain.State, text string) (after time.Duration) {
	f.Helper()
	after, err := f.evaluate(f.Context(), func(key string) { f.changed = append(f.changed, key) })
	require.NoError(f, err)
	found := meta.FindStatusCondition(f.Conditions(key), akriv0.ConditionDevicesWorking)
	require.Equal(f, string(state), found.Reason, found.Message)
	require.Equal(f, statuses[state], found.Status)
	require.Contains(f, found.Message, text)
	require.InDelta(f, 1, testutil.ToFloat64(f.counts.WithLabelValues("devices", string(state))), 0)
	return after
}

func TestConditionsFollowTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		require.Equal(t, kube.MaxWait, f.requireDevices(explain.Works, "1 device on 1 node"))
		brokers := meta.FindStatusCondition(f.Conditions(key), akriv0.ConditionBrokersWorking)
		require.Equal(t, akriv0.ReasonNotNeeded, brokers.Reason)
		f.requireDevices(explain.Works, "")
		require.Equal(t, []string{key}, f.changed, "an evaluation without a change has no effect")

		f.setNode(corev1.ConditionUnknown, 1)
		f.requireDevices(explain.Broken, "NodeNotReady: node-a is not ready; Find out why: kubectl describe node node-a")
		f.setNode(corev1.ConditionTrue, 1)
		f.requireDevices(explain.Works, "")
		require.Len(t, f.changed, 3)
	})
}

// A device that the kubelet does not have is broken after its time, without another change, and
// whatever the clocks of other machines have written.
func TestWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.setNode(corev1.ConditionTrue, 0)
		after := f.requireDevices(explain.Waiting, "waits for its next report since ")
		require.Regexp(t, `; at \S+Z it counts as broken$`, meta.FindStatusCondition(f.Conditions(key), akriv0.ConditionDevicesWorking).Message)
		require.InDelta(t, 30, after.Seconds(), 1)
		<-time.After(after - time.Second)
		f.requireDevices(explain.Waiting, "")
		<-time.After(time.Second)
		f.requireDevices(explain.Broken, "ResourceNotAdvertised")
	})
}

// A new leader keeps what an earlier one has found while it waits itself.
func TestNewLeaderKeepsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		configuration, _ := f.cache.Configurations.Get(key)
		meta.SetStatusCondition(&configuration.Status.Conditions, metav1.Condition{
			Type: akriv0.ConditionDevicesWorking, Status: metav1.ConditionFalse, Reason: string(explain.Broken),
		})
		f.setNode(corev1.ConditionTrue, 0)
		after, err := f.evaluate(t.Context(), func(string) {})
		require.NoError(t, err)
		require.Nil(t, meta.FindStatusCondition(f.Conditions(key), akriv0.ConditionDevicesWorking))
		<-time.After(after + time.Second)
		f.requireDevices(explain.Broken, "ResourceNotAdvertised")
		f.setNode(corev1.ConditionTrue, 1)
		f.requireDevices(explain.Works, "")
		f.setNode(corev1.ConditionTrue, 0)
		f.requireDevices(explain.Waiting, "")
	})
}

// Devices are broken when no replica of instance-writer renews its Lease, also while its Pods are
// ready, and work again when one does.
func TestSilentInstanceWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.requireDevices(explain.Works, "")
		<-time.After(time.Hour)
		f.requireDevices(explain.Works, "") // it may not renew a Lease at all
		f.writerRenewed()
		after := f.requireDevices(explain.Works, "")
		require.LessOrEqual(t, after, silentAfter)
		<-time.After(after)
		f.requireDevices(explain.Broken, "ServiceNotReady: no replica of instance-writer renews its Lease")
		f.writerRenewed()
		require.Len(t, f.Observer.changed, 1, "it evaluates again")
		f.requireDevices(explain.Works, "")
	})
}

func TestMessagesAreBounded(t *testing.T) {
	verdict := explain.Verdict{State: explain.Broken, Message: strings.Repeat("ä", maxMessage)}
	require.LessOrEqual(t, len(message(verdict)), maxMessage)
}
