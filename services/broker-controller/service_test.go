package brokercontroller_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	brokercontroller "akri.sh/services/broker-controller"
)

const (
	podsOnly     = `{brokerSpec: {brokerPodSpec: {containers: [{name: broker, image: v1, resources: {limits: {"{{PLACEHOLDER}}": "1"}}}]}}}`
	podsOnlyV2   = `{brokerSpec: {brokerPodSpec: {containers: [{name: broker, image: v2, resources: {limits: {"{{PLACEHOLDER}}": "1"}}}]}}}`
	withServices = `
brokerSpec: {brokerPodSpec: {containers: [{name: broker, image: v1}]}}
instanceServiceSpec: {ports: [{name: http, port: 80}]}
configurationServiceSpec: {ports: [{name: http, port: 80}]}
`
	oneJob       = `{brokerSpec: {brokerJobSpec: {template: {spec: {restartPolicy: Never, containers: [{name: broker, image: v1}]}}}}}`
	oneJobEdited = `{capacity: 3, brokerProperties: {A: b}, brokerSpec: {brokerJobSpec: {template: {spec: {restartPolicy: Never, containers: [{name: broker, image: v1}]}}}}}`
	otherJob     = `{brokerSpec: {brokerJobSpec: {template: {spec: {restartPolicy: Never, containers: [{name: broker, image: v2}]}}}}}`
)

func TestOneBrokerForEachNodeWithinCapacity(t *testing.T) {
	w := newWorld(t)
	w.start()
	c := w.configuration("echo", podsOnly)
	w.instance(c, "8120fe", 2, "node-a", "node-b", "node-c")
	w.instance(c, "d2981e", 1, "node-a")
	w.eventuallyNames(w.podNames, "echo-d2981e-pod", "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	require.Equal(t, "1", quantity(w.pod("echo-d2981e-pod"), "akri.sh/echo-d2981e"))
	w.hasEvent("echo-d2981e", "BrokerCreated", "echo-d2981e-pod")

	w.patchInstance("echo-8120fe", `{"spec":{"nodes":["node-b","node-c"]}}`)
	w.eventuallyNames(w.podNames, "echo-d2981e-pod", "node-b-echo-8120fe-pod", "node-c-echo-8120fe-pod")
	w.eventually(func() bool {
		count, err := testutil.GatherAndCount(w.metrics, "akri_broker_pod_count")
		require.NoError(t, err)
		return count == 3
	}, "a series for each node")

	require.NoError(t, w.Instances.In(w.namespace).Delete(t.Context(), "echo-8120fe", metav1.DeleteOptions{}))
	w.eventuallyNames(w.podNames, "echo-d2981e-pod")
}

func quantity(pod *corev1.Pod, resource corev1.ResourceName) string {
	q := pod.Spec.Containers[0].Resources.Limits[resource]
	return q.String()
}

func TestABrokerThatIsDeletedOrEndsComesBack(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.instance(w.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	w.eventuallyNames(w.podNames, "echo-8120fe-pod")
	for name, end := range map[string]func(){
		"deleted": func() {
			require.NoError(t, w.Pods.In(w.namespace).Delete(t.Context(), "echo-8120fe-pod", metav1.DeleteOptions{}))
		},
		"failed":    func() { w.kubelet(corev1.PodFailed, time.Now(), "echo-8120fe-pod") },
		"succeeded": func() { w.kubelet(corev1.PodSucceeded, time.Now(), "echo-8120fe-pod") },
		"stuck":     func() { w.kubelet(corev1.PodPending, time.Now().Add(-5*time.Minute), "echo-8120fe-pod") },
	} {
		before := w.pod("echo-8120fe-pod").UID
		end()
		w.eventually(func() bool { now := w.pod("echo-8120fe-pod").UID; return now != "" && now != before }, name)
	}
}

func TestAPendingBrokerIsReplacedByATimer(t *testing.T) {
	w := newWorld(t)
	w.start(func(c *brokercontroller.Config) { c.PendingMax = time.Second })
	w.instance(w.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	w.eventuallyNames(w.podNames, "echo-8120fe-pod")
	before := w.pod("echo-8120fe-pod").UID
	w.kubelet(corev1.PodPending, time.Now(), "echo-8120fe-pod")
	w.eventually(func() bool { now := w.pod("echo-8120fe-pod").UID; return now != "" && now != before }, "a new Pod")
}

func TestServicesAreThereFromTheFirstRunningBrokerToTheLast(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.instance(w.configuration("echo", withServices), "8120fe", 2, "node-a", "node-b")
	w.eventuallyNames(w.podNames, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	require.Empty(t, w.serviceNames())
	w.kubelet(corev1.PodRunning, time.Now(), "node-a-echo-8120fe-pod")
	w.eventuallyNames(w.serviceNames, "echo-8120fe-svc", "echo-svc")
	before := w.address("echo-svc")

	// Neither an edit of the Service nor the loss of the only running broker changes its address.
	w.edit("echo", strings.ReplaceAll(withServices, "port: 80", "port: 81"))
	w.eventually(func() bool { return w.port("echo-svc") == 81 && w.port("echo-8120fe-svc") == 81 }, "the new port")
	require.NoError(t, w.Pods.In(w.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	w.eventuallyNames(w.podNames, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	require.Equal(t, before, w.address("echo-svc"))

	require.NoError(t, w.Instances.In(w.namespace).Delete(t.Context(), "echo-8120fe", metav1.DeleteOptions{}))
	w.eventuallyNames(w.podNames)
	w.eventuallyNames(w.serviceNames)
}

func (w *world) service(name string) *corev1.Service {
	s, err := w.Services.In(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	return s
}

func (w *world) address(service string) string { return w.service(service).Spec.ClusterIP }

func (w *world) port(service string) int { return int(w.service(service).Spec.Ports[0].Port) }

func TestAServiceWhoseAddressMustChangeIsMadeAnew(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.instance(w.configuration("echo", withServices), "8120fe", 1, "node-a")
	w.eventuallyNames(w.podNames, "echo-8120fe-pod")
	w.kubelet(corev1.PodRunning, time.Now(), "echo-8120fe-pod")
	w.eventuallyNames(w.serviceNames, "echo-8120fe-svc", "echo-svc")
	w.edit("echo", strings.ReplaceAll(withServices, "ports:", "clusterIP: None, ports:"))
	w.eventually(func() bool {
		s, err := w.Services.In(w.namespace).Get(w.Context(), "echo-svc", metav1.GetOptions{})
		return err == nil && s.Spec.ClusterIP == "None"
	}, "a headless Service")
	before := w.service("echo-svc").UID
	w.edit("echo", strings.ReplaceAll(withServices, "port: 80", "port: 99999"))
	w.hasEvent("echo", "ServiceRefused", "must be between 1 and 65535")
	require.Equal(t, before, w.service("echo-svc").UID, "what works is not removed for what cannot be")
}

func TestAJobRunsOnceForEachInstanceAndSpec(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	c := w.configuration("echo", oneJob)
	w.instance(c, "8120fe", 1, "node-a")
	w.eventuallyNames(w.jobNames, "echo-8120fe-1-job")
	w.edit("echo", oneJobEdited)
	w.caughtUp()
	w.instance(c, "a19705", 1, "node-a")
	w.eventuallyNames(w.jobNames, "echo-8120fe-1-job", "echo-a19705-2-job")
	require.NoError(t, stop())
	w.start()
	w.edit("echo", otherJob)
	w.eventuallyNames(w.jobNames, "echo-8120fe-3-job", "echo-a19705-3-job")
	w.edit("echo", podsOnly)
	w.eventuallyNames(w.jobNames)
	w.eventuallyNames(w.podNames, "echo-8120fe-pod", "echo-a19705-pod")
	w.edit("echo", oneJob)
	w.eventuallyNames(w.jobNames, "echo-8120fe-5-job", "echo-a19705-5-job")
	w.eventuallyNames(w.podNames)
	require.NoError(t, w.Instances.In(w.namespace).Delete(t.Context(), "echo-8120fe", metav1.DeleteOptions{}))
	w.eventuallyNames(w.jobNames, "echo-a19705-5-job")
}

// A Job's first Pod could be refused while the device is still in use, and counts as a failure.
func TestAJobWaitsForTheBrokersThatItFollows(t *testing.T) {
	withService := func(spec string) string {
		return strings.Replace(spec, "{", "{instanceServiceSpec: {ports: [{name: http, port: 80}]}, ", 1)
	}
	w := newWorld(t)
	w.start()
	c := w.configuration("echo", withService(podsOnly))
	w.instance(c, "8120fe", 2, "node-a", "node-b")
	w.eventuallyNames(w.podNames, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	w.scheduled("node-a", "node-a-echo-8120fe-pod")
	w.scheduled("node-b", "node-b-echo-8120fe-pod")
	w.kubelet(corev1.PodRunning, time.Now(), "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	w.eventuallyNames(w.serviceNames, "echo-8120fe-svc")
	address := w.address("echo-8120fe-svc")

	w.edit("echo", withService(oneJob))
	w.eventually(func() bool {
		return w.pod("node-a-echo-8120fe-pod").DeletionTimestamp != nil && w.pod("node-b-echo-8120fe-pod").DeletionTimestamp != nil
	}, "the Pods to be on their way out")
	w.gone("node-a-echo-8120fe-pod")
	// A Job that waits for nothing shows that the edit has been worked on.
	w.instance(c, "a19705", 1, "node-a")
	w.eventuallyNames(w.jobNames, "echo-a19705-2-job")
	require.Equal(t, address, w.address("echo-8120fe-svc"), "the Service waits for the Job's Pod")
	w.gone("node-b-echo-8120fe-pod")
	w.eventuallyNames(w.jobNames, "echo-8120fe-2-job", "echo-a19705-2-job")
	require.Equal(t, address, w.address("echo-8120fe-svc"))
}

// A Pod on a lost node stays until the node is back or deleted; its slots are free before.
func TestAJobDoesNotWaitForLostNodes(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.instance(w.configuration("echo", podsOnly), "8120fe", 2, "node-a", "node-b")
	w.eventuallyNames(w.podNames, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	w.scheduled("node-a", "node-a-echo-8120fe-pod")
	w.kubelet(corev1.PodRunning, time.Now(), "node-a-echo-8120fe-pod")
	w.edit("echo", oneJob)
	w.eventuallyNames(w.podNames, "node-a-echo-8120fe-pod")
	w.patchInstance("echo-8120fe", `{"spec":{"nodes":["node-b"]}}`)
	w.eventuallyNames(w.jobNames, "echo-8120fe-2-job")
	w.eventuallyNames(w.podNames, "node-a-echo-8120fe-pod")
}

func TestBrokersAreUpdatedOneAtATime(t *testing.T) {
	w := newWorld(t)
	w.start()
	c := w.configuration("echo", podsOnly)
	w.instance(c, "8120fe", 2, "node-a", "node-b")
	w.instance(c, "d2981e", 1, "node-a")
	all := []string{"echo-d2981e-pod", "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod"}
	w.eventuallyNames(w.podNames, all...)
	w.kubelet(corev1.PodRunning, time.Now(), all...)
	w.edit("echo", podsOnlyV2)
	updated := map[string]bool{}
	for range all {
		var next string
		w.eventually(func() bool {
			for _, name := range all {
				pod := w.pod(name)
				if !updated[name] && len(pod.Spec.Containers) > 0 && pod.Spec.Containers[0].Image == "v2" {
					next = name
				}
			}
			return next != ""
		}, "the next broker")
		old := 0
		for _, name := range all {
			if pod := w.pod(name); len(pod.Spec.Containers) > 0 && pod.Spec.Containers[0].Image == "v1" {
				old++
			}
		}
		require.Equal(t, len(all)-len(updated)-1, old)
		updated[next] = true
		w.kubelet(corev1.PodRunning, time.Now(), next)
	}
}

func TestARefusedBrokerIsSaidAndDisturbsNoOther(t *testing.T) {
	w := newWorld(t)
	w.start()
	bad := w.configuration("bad", `{brokerSpec: {brokerPodSpec: {containers: [{name: "Not A Name", image: v1}]}}}`)
	w.instance(bad, "8120fe", 1, "node-a")
	w.hasEvent("bad-8120fe", "BrokerRefused", "Not A Name")
	w.hasEvent("bad", "BrokerRefused", "Not A Name")
	w.instance(w.configuration("good", podsOnly), "8120fe", 1, "node-a")
	w.eventuallyNames(w.podNames, "good-8120fe-pod")
	w.edit("bad", podsOnly)
	w.eventuallyNames(w.podNames, "bad-8120fe-pod", "good-8120fe-pod")
}

func TestAMalformedBrokerIsSaidAndDisturbsNoOther(t *testing.T) {
	w := newWorld(t)
	bad := w.configuration("bad", podsOnly)
	w.start()
	w.instance(bad, "8120fe", 1, "node-a")
	w.eventuallyNames(w.podNames, "bad-8120fe-pod")
	patch := []byte(`{"spec":{"brokerSpec":{"brokerPodSpec":{"containers":[{"name":"broker","resources":{"limits":{"cpu":"lots"}}}]}}}}`)
	_, err := w.Configurations.In(w.namespace).Patch(t.Context(), "bad", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	w.hasEvent("bad", "BrokerRefused", "spec.brokerSpec: quantities must match")
	w.hasEvent("bad-8120fe", "BrokerRefused", "spec.brokerSpec: quantities must match")
	w.instance(w.configuration("good", podsOnly), "8120fe", 1, "node-a")
	w.eventuallyNames(w.podNames, "bad-8120fe-pod", "good-8120fe-pod")
}

func TestUsersLabelsAndAnnotationsAreKept(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.instance(w.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	w.eventuallyNames(w.podNames, "echo-8120fe-pod")
	w.edit("echo", strings.Replace(podsOnly, "{brokerPodSpec", `{brokerPodMetadata: {labels: {team: vision, controller: mine}, annotations: {a: b}}, brokerPodSpec`, 1))
	w.eventually(func() bool { return w.pod("echo-8120fe-pod").Labels["team"] == "vision" }, "the labels of the user")
	pod := w.pod("echo-8120fe-pod")
	require.Equal(t, "akri.sh", pod.Labels["controller"])
	require.Equal(t, "b", pod.Annotations["a"])
}

func TestAPodOfSomebodyElseIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.start()
	theirs := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "echo-8120fe-pod", Namespace: w.namespace, Labels: map[string]string{
			"controller": "akri.sh", "akri.sh/configuration": "echo", "akri.sh/instance": "echo-8120fe",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "theirs", Image: "theirs"}}},
	}
	_, err := w.Pods.In(w.namespace).Create(t.Context(), theirs, metav1.CreateOptions{})
	require.NoError(t, err)
	w.instance(w.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	w.hasEvent("echo-8120fe", "BrokerRefused", "belongs to somebody else")
	require.Equal(t, "theirs", w.pod("echo-8120fe-pod").Spec.Containers[0].Image)
}

func TestARestartCreatesExactlyWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	c := w.configuration("echo", withServices)
	w.instance(c, "8120fe", 2, "node-a", "node-b")
	w.eventuallyNames(w.podNames, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	w.kubelet(corev1.PodRunning, time.Now(), "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	w.eventuallyNames(w.serviceNames, "echo-8120fe-svc", "echo-svc")
	w.hasEvent("echo", "ServiceCreated", "echo-svc")
	require.NoError(t, stop())
	kept := w.pod("node-a-echo-8120fe-pod").UID
	require.NoError(t, w.Pods.In(w.namespace).Delete(t.Context(), "node-b-echo-8120fe-pod", metav1.DeleteOptions{}))
	w.start()
	w.eventuallyNames(w.podNames, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	w.eventuallyNames(w.writes.list, "POST pods", "POST events")
	require.Equal(t, kept, w.pod("node-a-echo-8120fe-pod").UID)

	// A later change is worked on, and by then nothing else has been written.
	w.edit("echo", withServices+"\nbrokerProperties: {A: b}")
	w.instance(c, "d2981e", 1, "node-a")
	w.eventuallyNames(w.writes.list, "POST pods", "POST events", "POST pods", "POST events")
	w.eventuallyNames(w.podNames, "echo-d2981e-pod", "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
}

func TestAStandbyTakesOverAndNothingDoubles(t *testing.T) {
	w := newWorld(t)
	elect := func(c *brokercontroller.Config) { c.LeaderElect = true }
	stop := w.start(elect)
	c := w.configuration("echo", oneJob)
	w.instance(c, "8120fe", 1, "node-a")
	w.eventuallyNames(w.jobNames, "echo-8120fe-1-job")
	w.start(elect)
	require.NoError(t, stop())
	w.instance(c, "a19705", 1, "node-a")
	w.eventuallyNames(w.jobNames, "echo-8120fe-1-job", "echo-a19705-1-job")
}

func TestNamesEqualInTwoNamespacesDoNotMix(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	w.start()
	w.instance(w.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	other.instance(other.configuration("echo", withServices), "8120fe", 1, "node-b")
	w.eventuallyNames(w.podNames, "echo-8120fe-pod")
	other.eventuallyNames(other.podNames, "echo-8120fe-pod")
	other.kubelet(corev1.PodRunning, time.Now(), "echo-8120fe-pod")
	other.eventuallyNames(other.serviceNames, "echo-8120fe-svc", "echo-svc")
	require.NoError(t, other.Instances.In(other.namespace).Delete(t.Context(), "echo-8120fe", metav1.DeleteOptions{}))
	other.eventuallyNames(other.podNames)
	require.Equal(t, []string{"echo-8120fe-pod"}, w.podNames())
	require.Empty(t, w.serviceNames())
}

func TestNothingIsLeftRunning(t *testing.T) {
	w := newWorld(t)
	// Connections are kept for the next client of the same server.
	ignored := []goleak.Option{
		goleak.IgnoreCurrent(),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
	}
	stop := w.start(func(c *brokercontroller.Config) { c.LeaderElect = true })
	w.instance(w.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	w.eventuallyNames(w.podNames, "echo-8120fe-pod")
	err := stop()
	require.False(t, errors.Is(err, context.Canceled))
	require.NoError(t, err)
	goleak.VerifyNone(t, ignored...)
}
