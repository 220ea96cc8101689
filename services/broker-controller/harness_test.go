package brokercontroller_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"akri.sh/libs/admin"
	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/service"
	brokercontroller "akri.sh/services/broker-controller"
	"akri.sh/services/broker-controller/internal/cluster"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const (
	timeout      = time.Minute
	pollInterval = 10 * time.Millisecond
)

// testEnv is a namespace of the API server. Its methods act as the user, instance-writer and the
// kubelet.
type testEnv struct {
	testing.TB
	cluster.Clients
	clientset *kubernetes.Clientset
	namespace string
	metrics   *prometheus.Registry
	// health of the last started controller.
	health *admin.Health
	guard  *admin.Guard
	// writes of the last started controller in the namespace.
	writes *writes
	// wrap wraps the transport of the controller, if set.
	wrap func(http.RoundTripper) http.RoundTripper
}

var namespaceCount atomic.Int32

func newTestEnv(tb testing.TB) *testEnv {
	tb.Helper()
	clients, err := cluster.NewClients(server.Config())
	require.NoError(tb, err)
	clientset, err := kubernetes.NewForConfig(server.Config())
	require.NoError(tb, err)
	e := &testEnv{TB: tb, Clients: clients, clientset: clientset, namespace: fmt.Sprintf("test-%d", namespaceCount.Add(1))}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}
	_, err = clientset.CoreV1().Namespaces().Create(tb.Context(), namespace, metav1.CreateOptions{})
	require.NoError(tb, err)
	tb.Cleanup(e.clear)
	return e
}

// clear deletes all objects, because the controllers of later tests see all namespaces.
func (e *testEnv) clear() {
	ctx, all, background := context.Background(), metav1.ListOptions{}, metav1.DeletePropagationBackground
	require.NoError(e, e.Instances.In(e.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	require.NoError(e, e.Configurations.In(e.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	require.NoError(e, e.Pods.In(e.namespace).DeleteCollection(ctx, *metav1.NewDeleteOptions(0), all))
	require.NoError(e, e.Jobs.In(e.namespace).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, all))
}

// start runs a controller. stop stops it and waits for its end.
func (e *testEnv) start(options ...func(*brokercontroller.Config)) (stop func() error) {
	e.Helper()
	config := brokercontroller.Config{PendingMax: 5 * time.Minute, BrokerStartTimeout: 30 * time.Second, Namespace: e.namespace}
	for _, f := range options {
		f(&config)
	}
	config.REST = server.Config()
	e.writes = &writes{namespace: e.namespace}
	config.REST.Wrap(e.writes.record)
	if e.wrap != nil {
		config.REST.Wrap(e.wrap)
	}
	e.metrics, e.health, e.guard = prometheus.NewRegistry(), &admin.Health{}, &admin.Guard{}
	env := service.Env{Log: zap.NewNop(), Metrics: e.metrics, Health: e.health, Guard: e.guard}
	s, err := brokercontroller.New(config, env)
	require.NoError(e, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	ended := false
	stop = func() error {
		cancel()
		if ended {
			return nil
		}
		ended = true
		return <-done
	}
	e.Cleanup(func() { require.NoError(e, stop()) })
	return stop
}

// writes records the requests that change objects of a namespace, except Leases.
type writes struct {
	namespace string
	mu        sync.Mutex
	requests  []string
}

func (e *writes) record(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		path := request.URL.Path
		if request.Method != http.MethodGet && strings.Contains(path, "/"+e.namespace+"/") && !strings.Contains(path, "/leases") {
			e.mu.Lock()
			e.requests = append(e.requests, request.Method+" "+path)
			e.mu.Unlock()
		}
		return next.RoundTrip(request)
	})
}

// list returns the method and the last element of the path of each request, without those that
// write conditions: they come at intervals, and depend on when the test continues.
func (e *writes) list() (requests []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, request := range e.requests {
		method, url, _ := strings.Cut(request, " ")
		if !strings.HasSuffix(url, "/status") {
			requests = append(requests, method+" "+path.Base(url))
		}
	}
	return requests
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (e *testEnv) configuration(name, spec string) *akriv0.Configuration {
	e.Helper()
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: e.namespace}}
	require.NoError(e, yaml.UnmarshalStrict([]byte(spec), &c.Spec))
	c.Spec.DiscoveryHandler.Name = "debugEcho"
	created, err := e.Configurations.In(e.namespace).Create(e.Context(), c, metav1.CreateOptions{})
	require.NoError(e, err)
	return created
}

func (e *testEnv) edit(name, spec string) {
	e.Helper()
	kubetest.Edit(e, e.Configurations.In(e.namespace), name, func(c *akriv0.Configuration) {
		c.Spec = akriv0.ConfigurationSpec{}
		require.NoError(e, yaml.UnmarshalStrict([]byte(spec), &c.Spec))
		c.Spec.DiscoveryHandler.Name = "debugEcho"
	})
}

// waitForConfigurations waits until the controller has seen all previous changes of Configurations.
// It sees them in order, but not in order with changes of Instances. It deletes the objects that it
// creates.
func (e *testEnv) waitForConfigurations() {
	e.Helper()
	e.instance(e.configuration("later", oneJob), "8120fe", 1, "node-a")
	hasJob := func() bool { return slices.Contains(e.jobNames(), "later-8120fe-1-job") }
	e.eventually(hasJob, "the Job of a later Configuration")
	require.NoError(e, e.Instances.In(e.namespace).Delete(e.Context(), "later-8120fe", metav1.DeleteOptions{}))
	require.NoError(e, e.Configurations.In(e.namespace).Delete(e.Context(), "later", metav1.DeleteOptions{}))
	e.eventually(func() bool { return !hasJob() }, "the Job to be gone")
}

// instance creates an Instance. It is shared if it has more than one node.
func (e *testEnv) instance(of *akriv0.Configuration, digest string, capacity int32, nodes ...string) *akriv0.Instance {
	e.Helper()
	instance := &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{
			Name: akriv0.InstanceName(of.Name, digest), Namespace: e.namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(of, akriv0.GroupVersion.WithKind("Configuration"))},
		},
		Spec: akriv0.InstanceSpec{
			ConfigurationName: of.Name, CDIName: akriv0.CDIName(of.Name, digest), Capacity: capacity, Nodes: nodes, Shared: len(nodes) > 1,
		},
	}
	created, err := e.Instances.In(e.namespace).Create(e.Context(), instance, metav1.CreateOptions{})
	require.NoError(e, err)
	return created
}

func (e *testEnv) patchInstance(name, patch string) {
	e.Helper()
	_, err := e.Instances.In(e.namespace).Patch(e.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(e, err)
}

func (e *testEnv) podNames() []string {
	pods, err := e.Pods.In(e.namespace).List(e.Context(), metav1.ListOptions{})
	require.NoError(e, err)
	names := []string{}
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	return names
}

func (e *testEnv) jobNames() []string {
	jobs, err := e.Jobs.In(e.namespace).List(e.Context(), metav1.ListOptions{})
	require.NoError(e, err)
	names := []string{}
	for _, job := range jobs.Items {
		names = append(names, job.Name)
	}
	return names
}

func (e *testEnv) serviceNames() []string {
	services, err := e.Services.In(e.namespace).List(e.Context(), metav1.ListOptions{})
	require.NoError(e, err)
	names := []string{}
	for _, s := range services.Items {
		names = append(names, s.Name)
	}
	return names
}

func (e *testEnv) pod(name string) *corev1.Pod {
	pod, err := e.Pods.In(e.namespace).Get(e.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &corev1.Pod{}
	}
	require.NoError(e, err)
	return pod
}

// bind binds the Pod to the node. From then on a deletion waits for the kubelet.
func (e *testEnv) bind(node, pod string) {
	e.Helper()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	require.NoError(e, e.clientset.CoreV1().Pods(e.namespace).Bind(e.Context(), binding, metav1.CreateOptions{}))
}

// forceDelete deletes the Pod as the kubelet does when the containers have ended.
func (e *testEnv) forceDelete(pod string) {
	e.Helper()
	require.NoError(e, e.Pods.In(e.namespace).Delete(e.Context(), pod, *metav1.NewDeleteOptions(0)))
}

// setPhase sets the status of the Pods as the kubelet does.
func (e *testEnv) setPhase(phase corev1.PodPhase, pods ...string) {
	e.Helper()
	e.setPhaseAt(time.Now(), phase, pods...)
}

// setPhaseAt sets the status as a kubelet does whose clock shows this time.
func (e *testEnv) setPhaseAt(started time.Time, phase corev1.PodPhase, pods ...string) {
	e.Helper()
	for _, name := range pods {
		kubetest.EditStatus(e, e.Pods.In(e.namespace), name, func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.StartTime = phase, new(metav1.NewTime(started))
		})
	}
}

func (e *testEnv) eventually(condition func() bool, what string) {
	e.Helper()
	require.Eventually(e, condition, timeout, pollInterval, what)
}

func (e *testEnv) eventuallyNames(names func() []string, expected ...string) {
	e.Helper()
	require.EventuallyWithT(e, func(c *assert.CollectT) { require.Equal(c, fmt.Sprint(expected), fmt.Sprint(names())) }, timeout, pollInterval)
}

func (e *testEnv) hasEvent(object, reason, text string) {
	e.Helper()
	e.eventually(func() bool {
		events, err := e.clientset.CoreV1().Events(e.namespace).List(e.Context(), metav1.ListOptions{})
		require.NoError(e, err)
		for _, event := range events.Items {
			if event.InvolvedObject.Name == object && event.Reason == reason && strings.Contains(event.Message, text) {
				return true
			}
		}
		return false
	}, "an Event "+reason+" on "+object)
}
