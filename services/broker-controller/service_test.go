package brokercontroller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/libs/kube/kubetest"
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
	e := newTestEnv(t)
	e.start()
	c := e.configuration("echo", podsOnly)
	e.instance(c, "8120fe", 2, "node-a", "node-b", "node-c")
	e.instance(c, "d2981e", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-d2981e-pod", "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	require.Equal(t, "1", quantity(e.pod("echo-d2981e-pod"), "akri.sh/echo-d2981e"))
	e.hasEvent("echo-d2981e", "BrokerCreated", "echo-d2981e-pod")

	e.patchInstance("echo-8120fe", `{"spec":{"nodes":["node-b","node-c"]}}`)
	e.eventuallyNames(e.podNames, "echo-d2981e-pod", "node-b-echo-8120fe-pod", "node-c-echo-8120fe-pod")
	e.eventually(func() bool {
		count, err := testutil.GatherAndCount(e.metrics, "akri_broker_pod_count")
		require.NoError(t, err)
		return count == 3
	}, "a series for each node")

	require.NoError(t, e.Instances.In(e.namespace).Delete(t.Context(), "echo-8120fe", metav1.DeleteOptions{}))
	e.eventuallyNames(e.podNames, "echo-d2981e-pod")
}

func quantity(pod *corev1.Pod, resource corev1.ResourceName) string {
	q := pod.Spec.Containers[0].Resources.Limits[resource]
	return q.String()
}

func TestDeletedOrEndedBrokerIsReplaced(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	e.instance(e.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	for name, end := range map[string]func(){
		"deleted": func() {
			require.NoError(t, e.Pods.In(e.namespace).Delete(t.Context(), "echo-8120fe-pod", metav1.DeleteOptions{}))
		},
		"failed":    func() { e.setPhase(corev1.PodFailed, "echo-8120fe-pod") },
		"succeeded": func() { e.setPhase(corev1.PodSucceeded, "echo-8120fe-pod") },
	} {
		before := e.pod("echo-8120fe-pod").UID
		end()
		e.awaitReplacement(before, name)
	}
}

// The kubelet refuses a Pod whose device a Pod on another node has taken. The broker is created
// again after 1 s, 2 s and so on, so that there are few until the scheduler has the next status of
// the node, up to 10 s later.
func TestRefusedBrokerIsReplacedLater(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	e.waitForConfigurations() // the controller leads
	began := time.Now()
	e.instance(e.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	for range 2 {
		uid := e.pod("echo-8120fe-pod").UID
		e.block("echo-8120fe-pod", corev1.PodStatus{ // the kubelet sets no other field
			Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "Pod was rejected: no free slot",
			StartTime: new(metav1.Now()),
		})
		e.awaitReplacement(uid, "refused")
	}
	require.GreaterOrEqual(t, time.Since(began), 3*time.Second)
	e.brokersRunning(metav1.ConditionFalse, "UnexpectedAdmissionError", "0 of 1 brokers run; echo-8120fe-pod: UnexpectedAdmissionError: Pod was rejected: no free slot")
}

func (e *testEnv) awaitReplacement(before types.UID, what string) {
	e.Helper()
	e.eventually(func() bool { now := e.pod("echo-8120fe-pod").UID; return now != "" && now != before }, what)
}

func TestStuckBrokerIsReplaced(t *testing.T) {
	e := newTestEnv(t)
	e.start(func(c *brokercontroller.Config) { c.PendingMax = time.Second })
	e.instance(e.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	for clock, offset := range map[string]time.Duration{
		"the kubelet's clock is right": 0, "it is an hour behind": -time.Hour, "it is an hour ahead": time.Hour,
	} {
		before, since := e.pod("echo-8120fe-pod").UID, time.Now()
		e.setPhaseAt(since.Add(offset), corev1.PodPending, "echo-8120fe-pod")
		e.awaitReplacement(before, clock)
		require.GreaterOrEqual(t, time.Since(since), time.Second, clock)
	}
	e.hasEvent("echo-8120fe", "BrokerRemoved", "Replaced Pod echo-8120fe-pod: it had not started within 1s.")
}

func TestServicesExistWhileBrokersRun(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	e.instance(e.configuration("echo", withServices), "8120fe", 2, "node-a", "node-b")
	e.eventuallyNames(e.podNames, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	require.Empty(t, e.serviceNames())
	e.setPhase(corev1.PodRunning, "node-a-echo-8120fe-pod")
	e.eventuallyNames(e.serviceNames, "echo-8120fe-svc", "echo-svc")
	before := e.address("echo-svc")

	// Neither an edit of the Service nor the loss of the only running broker changes its address.
	e.edit("echo", strings.ReplaceAll(withServices, "port: 80", "port: 81"))
	e.eventually(func() bool { return e.port("echo-svc") == 81 && e.port("echo-8120fe-svc") == 81 }, "the new port")
	require.NoError(t, e.Pods.In(e.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	e.eventuallyNames(e.podNames, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	require.Equal(t, before, e.address("echo-svc"))

	require.NoError(t, e.Instances.In(e.namespace).Delete(t.Context(), "echo-8120fe", metav1.DeleteOptions{}))
	e.eventuallyNames(e.podNames)
	e.eventuallyNames(e.serviceNames)
}

func (e *testEnv) service(name string) *corev1.Service {
	s, err := e.Services.In(e.namespace).Get(e.Context(), name, metav1.GetOptions{})
	require.NoError(e, err)
	return s
}

func (e *testEnv) address(service string) string { return e.service(service).Spec.ClusterIP }

func (e *testEnv) port(service string) int { return int(e.service(service).Spec.Ports[0].Port) }

func TestServiceWithNewAddressIsRecreated(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	e.instance(e.configuration("echo", withServices), "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	e.setPhase(corev1.PodRunning, "echo-8120fe-pod")
	e.eventuallyNames(e.serviceNames, "echo-8120fe-svc", "echo-svc")
	e.edit("echo", strings.ReplaceAll(withServices, "ports:", "clusterIP: None, ports:"))
	e.eventually(func() bool {
		s, err := e.Services.In(e.namespace).Get(e.Context(), "echo-svc", metav1.GetOptions{})
		return err == nil && s.Spec.ClusterIP == "None"
	}, "a headless Service")
	before := e.service("echo-svc").UID
	e.edit("echo", strings.ReplaceAll(withServices, "port: 80", "port: 99999"))
	e.hasEvent("echo", "ServiceRefused", "must be between 1 and 65535")
	require.Equal(t, before, e.service("echo-svc").UID, "an invalid spec must not delete the Service")
}

func TestJobRunsOncePerInstanceAndSpec(t *testing.T) {
	e := newTestEnv(t)
	stop := e.start()
	c := e.configuration("echo", oneJob)
	e.instance(c, "8120fe", 1, "node-a")
	e.eventuallyNames(e.jobNames, "echo-8120fe-1-job")
	e.edit("echo", oneJobEdited)
	e.waitForConfigurations()
	e.instance(c, "a19705", 1, "node-a")
	e.eventuallyNames(e.jobNames, "echo-8120fe-1-job", "echo-a19705-2-job")
	require.NoError(t, stop())
	e.start()
	e.edit("echo", otherJob)
	e.eventuallyNames(e.jobNames, "echo-8120fe-3-job", "echo-a19705-3-job")
	e.edit("echo", podsOnly)
	e.eventuallyNames(e.jobNames)
	e.eventuallyNames(e.podNames, "echo-8120fe-pod", "echo-a19705-pod")
	e.edit("echo", oneJob)
	e.eventuallyNames(e.jobNames, "echo-8120fe-5-job", "echo-a19705-5-job")
	e.eventuallyNames(e.podNames)
	require.NoError(t, e.Instances.In(e.namespace).Delete(t.Context(), "echo-8120fe", metav1.DeleteOptions{}))
	e.eventuallyNames(e.jobNames, "echo-a19705-5-job")
}

// The kubelet could reject the Job's first Pod while the device is in use, which counts as a
// failure of the Job.
func TestJobWaitsForPreviousBrokers(t *testing.T) {
	withService := func(spec string) string {
		return strings.Replace(spec, "{", "{instanceServiceSpec: {ports: [{name: http, port: 80}]}, ", 1)
	}
	e := newTestEnv(t)
	e.start()
	c := e.configuration("echo", withService(podsOnly))
	e.instance(c, "8120fe", 2, "node-a", "node-b")
	e.eventuallyNames(e.podNames, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	e.bind("node-a", "node-a-echo-8120fe-pod")
	e.bind("node-b", "node-b-echo-8120fe-pod")
	e.setPhase(corev1.PodRunning, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	e.eventuallyNames(e.serviceNames, "echo-8120fe-svc")
	address := e.address("echo-8120fe-svc")

	e.edit("echo", withService(oneJob))
	e.eventually(func() bool {
		return e.pod("node-a-echo-8120fe-pod").DeletionTimestamp != nil && e.pod("node-b-echo-8120fe-pod").DeletionTimestamp != nil
	}, "the deletion of the Pods")
	e.forceDelete("node-a-echo-8120fe-pod")
	// A Job that does not wait shows that the edit has been reconciled.
	e.instance(c, "a19705", 1, "node-a")
	e.eventuallyNames(e.jobNames, "echo-a19705-2-job")
	require.Equal(t, address, e.address("echo-8120fe-svc"), "the Service must keep its address until the Job's Pod runs")
	e.forceDelete("node-b-echo-8120fe-pod")
	e.eventuallyNames(e.jobNames, "echo-8120fe-2-job", "echo-a19705-2-job")
	require.Equal(t, address, e.address("echo-8120fe-svc"))
}

// A Pod on a lost node stays until the node returns or is deleted. Its slots are free earlier.
func TestJobDoesNotWaitForLostNodes(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	e.instance(e.configuration("echo", podsOnly), "8120fe", 2, "node-a", "node-b")
	e.eventuallyNames(e.podNames, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	e.bind("node-a", "node-a-echo-8120fe-pod")
	e.setPhase(corev1.PodRunning, "node-a-echo-8120fe-pod")
	e.edit("echo", oneJob)
	e.eventuallyNames(e.podNames, "node-a-echo-8120fe-pod")
	e.patchInstance("echo-8120fe", `{"spec":{"nodes":["node-b"]}}`)
	e.eventuallyNames(e.jobNames, "echo-8120fe-2-job")
	e.eventuallyNames(e.podNames, "node-a-echo-8120fe-pod")
}

func TestRolloutReplacesOneBrokerAtATime(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	c := e.configuration("echo", podsOnly)
	e.instance(c, "8120fe", 2, "node-a", "node-b")
	e.instance(c, "d2981e", 1, "node-a")
	all := []string{"echo-d2981e-pod", "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod"}
	e.eventuallyNames(e.podNames, all...)
	e.setPhase(corev1.PodRunning, all...)
	e.edit("echo", podsOnlyV2)
	updated := map[string]bool{}
	for range all {
		var next string
		e.eventually(func() bool {
			for _, name := range all {
				pod := e.pod(name)
				if !updated[name] && len(pod.Spec.Containers) > 0 && pod.Spec.Containers[0].Image == "v2" {
					next = name
				}
			}
			return next != ""
		}, "the next broker")
		old := 0
		for _, name := range all {
			if pod := e.pod(name); len(pod.Spec.Containers) > 0 && pod.Spec.Containers[0].Image == "v1" {
				old++
			}
		}
		require.Equal(t, len(all)-len(updated)-1, old)
		updated[next] = true
		e.setPhase(corev1.PodRunning, next)
	}
	e.hasEvent("echo-d2981e", "BrokerRemoved", "Replaced Pod echo-d2981e-pod: the broker spec changed.")
}

func TestRefusedBrokerHasEventAndNoSideEffects(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	bad := e.configuration("bad", `{brokerSpec: {brokerPodSpec: {containers: [{name: "Not A Name", image: v1}]}}}`)
	e.instance(bad, "8120fe", 1, "node-a")
	e.hasEvent("bad-8120fe", "BrokerRefused", `Kubernetes refused to create Pod "bad-8120fe-pod": `)
	e.hasEvent("bad", "BrokerRefused", "Not A Name")
	e.instance(e.configuration("good", podsOnly), "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "good-8120fe-pod")
	e.edit("bad", podsOnly)
	e.eventuallyNames(e.podNames, "bad-8120fe-pod", "good-8120fe-pod")
}

func TestInvalidBrokerHasNoSideEffects(t *testing.T) {
	e := newTestEnv(t)
	bad := e.configuration("bad", podsOnly)
	e.start()
	e.instance(bad, "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "bad-8120fe-pod")
	patch := []byte(`{"spec":{"brokerSpec":{"brokerPodSpec":{"containers":[{"name":"broker","resources":{"limits":{"cpu":"lots"}}}]}}}}`)
	_, err := e.Configurations.In(e.namespace).Patch(t.Context(), "bad", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	e.hasEvent("bad", "InvalidSpec", `SpecValid is False: spec.brokerSpec.brokerPodSpec.containers[0].resources.limits[cpu]: Invalid value: "lots"`)
	e.instance(bad, "d2981e", 1, "node-a")
	e.instance(e.configuration("good", podsOnly), "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "bad-8120fe-pod", "good-8120fe-pod")
}

func TestUserLabelsAndAnnotationsAreKept(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	e.instance(e.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	e.edit("echo", strings.Replace(podsOnly, "{brokerPodSpec", `{brokerPodMetadata: {labels: {team: vision, controller: mine}, annotations: {a: b}}, brokerPodSpec`, 1))
	e.eventually(func() bool { return e.pod("echo-8120fe-pod").Labels["team"] == "vision" }, "the user's labels")
	pod := e.pod("echo-8120fe-pod")
	require.Equal(t, "akri.sh", pod.Labels["controller"])
	require.Equal(t, "b", pod.Annotations["a"])
}

// TestMetadataNamesTheDevice checks the labels and annotations that users add to brokers and to
// both Services, and that name the device and the Configuration. A change updates the Services in
// place.
func TestMetadataNamesTheDevice(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	e.instance(e.configuration("echo", withMetadata), "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	require.Equal(t, "echo-8120fe.echo", e.pod("echo-8120fe-pod").Annotations["example.com/dns"])
	e.setPhase(corev1.PodRunning, "echo-8120fe-pod")
	e.eventuallyNames(e.serviceNames, "echo-8120fe-svc", "echo-svc")
	const finalizer = "example.com/load-balancer"
	uids := map[string]types.UID{}
	for name, device := range map[string]string{"echo-8120fe-svc": "echo-8120fe.echo", "echo-svc": "all.echo"} {
		service := e.service(name)
		uids[name] = service.UID
		kubetest.Edit(t, e.Services.In(e.namespace), name, func(service *corev1.Service) {
			service.Finalizers = []string{finalizer} // as the controller of a cloud does
		})
		require.Equal(t, device, service.Annotations["example.com/dns"])
		require.Equal(t, "vision", service.Labels["team"])
		require.Equal(t, "akri.sh", service.Labels["controller"], "a reserved label")
		require.NotContains(t, service.Spec.Selector, "team")
	}

	e.edit("echo", strings.ReplaceAll(withMetadata, "example.com/dns", "example.com/host"))
	for name, device := range map[string]string{"echo-8120fe-svc": "echo-8120fe.echo", "echo-svc": "all.echo"} {
		e.eventually(func() bool { return e.service(name).Annotations["example.com/host"] == device }, "the changed annotation of "+name)
		service := e.service(name)
		require.NotContains(t, service.Annotations, "example.com/dns")
		require.Equal(t, uids[name], service.UID)
		require.Equal(t, []string{finalizer}, service.Finalizers)
	}

	e.edit("echo", withServices)
	for name := range uids {
		e.eventually(func() bool { return e.service(name).Annotations["example.com/host"] == "" }, "the removed annotation of "+name)
		require.NotContains(t, e.service(name).Labels, "team")
		require.Equal(t, uids[name], e.service(name).UID)
	}
}

const withMetadata = `
brokerSpec:
  brokerPodSpec: {containers: [{name: broker, image: v1}]}
  brokerPodMetadata: {annotations: {example.com/dns: $(AKRI_INSTANCE).$(AKRI_CONFIGURATION)}}
instanceServiceSpec: {ports: [{name: http, port: 80}]}
configurationServiceSpec: {ports: [{name: http, port: 80}]}
instanceServiceMetadata:
  labels: {team: vision, controller: mine}
  annotations: {example.com/dns: $(AKRI_INSTANCE).$(AKRI_CONFIGURATION)}
configurationServiceMetadata:
  labels: {team: vision, controller: mine}
  annotations: {example.com/dns: all.$(AKRI_CONFIGURATION)}
`

func TestPodOfAnotherOwnerIsKept(t *testing.T) {
	e := newTestEnv(t)
	e.start()
	foreign := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "echo-8120fe-pod", Namespace: e.namespace, Labels: map[string]string{
			"controller": "akri.sh", "akri.sh/configuration": "echo", "akri.sh/instance": "echo-8120fe",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "foreign", Image: "foreign"}}},
	}
	_, err := e.Pods.In(e.namespace).Create(t.Context(), foreign, metav1.CreateOptions{})
	require.NoError(t, err)
	e.instance(e.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	e.hasEvent("echo-8120fe", "BrokerRefused", "the name is used by an object with another owner")
	require.Equal(t, "foreign", e.pod("echo-8120fe-pod").Spec.Containers[0].Image)
}

func TestRestartCreatesOnlyMissingObjects(t *testing.T) {
	e := newTestEnv(t)
	stop := e.start()
	c := e.configuration("echo", withServices)
	e.instance(c, "8120fe", 2, "node-a", "node-b")
	e.eventuallyNames(e.podNames, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	e.setPhase(corev1.PodRunning, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	e.eventuallyNames(e.serviceNames, "echo-8120fe-svc", "echo-svc")
	e.hasEvent("echo", "ServiceCreated", "echo-svc")
	require.NoError(t, stop())
	kept := e.pod("node-a-echo-8120fe-pod").UID
	require.NoError(t, e.Pods.In(e.namespace).Delete(t.Context(), "node-b-echo-8120fe-pod", metav1.DeleteOptions{}))
	e.start()
	e.eventuallyNames(e.podNames, "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
	e.eventuallyNames(e.writes.list, "POST pods", "POST events")
	require.Equal(t, kept, e.pod("node-a-echo-8120fe-pod").UID)

	// When a later change is reconciled, nothing else has been written.
	e.edit("echo", withServices+"\nbrokerProperties: {A: b}")
	e.instance(c, "d2981e", 1, "node-a")
	e.eventuallyNames(e.writes.list, "POST pods", "POST events", "POST pods", "POST events")
	e.eventuallyNames(e.podNames, "echo-d2981e-pod", "node-a-echo-8120fe-pod", "node-b-echo-8120fe-pod")
}

func TestStandbyTakesOver(t *testing.T) {
	e := newTestEnv(t)
	elect := func(c *brokercontroller.Config) { c.LeaderElect = true }
	stop := e.start(elect)
	c := e.configuration("echo", oneJob)
	e.instance(c, "8120fe", 1, "node-a")
	e.eventuallyNames(e.jobNames, "echo-8120fe-1-job")
	e.start(elect)
	require.NoError(t, stop())
	e.instance(c, "a19705", 1, "node-a")
	e.eventuallyNames(e.jobNames, "echo-8120fe-1-job", "echo-a19705-1-job")
}

// TestLostLease takes the Lease from a leader. The process goes on, is a candidate, and leads again
// without repeating its work.
func TestLostLease(t *testing.T) {
	e := newTestEnv(t)
	var refused atomic.Bool
	e.wrap = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if refused.Load() && strings.Contains(request.URL.Path, "/leases/") {
				return nil, errors.New("connection refused")
			}
			return next.RoundTrip(request)
		})
	}
	e.start(func(c *brokercontroller.Config) { c.LeaderElect = true })
	leads := func(expected float64) {
		t.Helper()
		const leading = "akri_broker_controller_leading"
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			require.NoError(c, testutil.GatherAndCompare(e.metrics, strings.NewReader(
				"# HELP "+leading+" 1 if this process is the leader, else 0.\n# TYPE "+leading+" gauge\n"+
					leading+" "+fmt.Sprint(expected)+"\n"), leading))
		}, 2*timeout, pollInterval)
	}
	leads(1)
	c := e.configuration("echo", oneJob)
	e.instance(c, "8120fe", 1, "node-a")
	e.eventuallyNames(e.jobNames, "echo-8120fe-1-job")
	refused.Store(true)
	leads(0)
	e.instance(c, "a19705", 1, "node-a")
	refused.Store(false)
	leads(1)
	e.eventuallyNames(e.jobNames, "echo-8120fe-1-job", "echo-a19705-1-job")
	e.eventuallyNames(func() []string {
		return slices.DeleteFunc(e.writes.list(), func(write string) bool { return write != "POST jobs" })
	}, "POST jobs", "POST jobs")
}

func TestSameNamesInTwoNamespaces(t *testing.T) {
	e, other := newTestEnv(t), newTestEnv(t)
	e.start()
	e.instance(e.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	other.instance(other.configuration("echo", withServices), "8120fe", 1, "node-b")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	other.eventuallyNames(other.podNames, "echo-8120fe-pod")
	other.setPhase(corev1.PodRunning, "echo-8120fe-pod")
	other.eventuallyNames(other.serviceNames, "echo-8120fe-svc", "echo-svc")
	require.NoError(t, other.Instances.In(other.namespace).Delete(t.Context(), "echo-8120fe", metav1.DeleteOptions{}))
	other.eventuallyNames(other.podNames)
	require.Equal(t, []string{"echo-8120fe-pod"}, e.podNames())
	require.Empty(t, e.serviceNames())
}

func TestRunStopsAllGoroutines(t *testing.T) {
	e := newTestEnv(t)
	kubetest.NoLeaks(t)
	stop := e.start(func(c *brokercontroller.Config) { c.LeaderElect = true })
	e.instance(e.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	err := stop()
	require.False(t, errors.Is(err, context.Canceled))
	require.NoError(t, err)
}
