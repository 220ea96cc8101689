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
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/service"
	brokercontroller "akri.sh/services/broker-controller"
	"akri.sh/services/broker-controller/internal/cluster"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const (
	within = 15 * time.Second
	poll   = 10 * time.Millisecond
)

// world is one namespace of the API server, and the user's and instance-writer's part in it.
type world struct {
	testing.TB
	cluster.Clients
	namespace string
	metrics   *prometheus.Registry
	// writes of the controller that was started last, in this namespace.
	writes *writes
	// wrap, when set, comes between the controllers that are started and the API server.
	wrap func(http.RoundTripper) http.RoundTripper
}

var worlds atomic.Int32

func newWorld(tb testing.TB) *world {
	tb.Helper()
	clients, err := cluster.NewClients(server.Config())
	require.NoError(tb, err)
	namespaces, err := kube.NewClient(server.Config(), corev1.SchemeGroupVersion.WithResource("namespaces"), corev1.AddToScheme,
		func() *corev1.Namespace { return &corev1.Namespace{} }, func() *corev1.NamespaceList { return &corev1.NamespaceList{} })
	require.NoError(tb, err)
	w := &world{TB: tb, Clients: clients, namespace: fmt.Sprintf("world-%d", worlds.Add(1))}
	_, err = namespaces.In("").Create(tb.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, metav1.CreateOptions{})
	require.NoError(tb, err)
	tb.Cleanup(w.clear)
	return w
}

// clear leaves no brokers to the controllers of later tests.
func (w *world) clear() {
	ctx, all, background := context.Background(), metav1.ListOptions{}, metav1.DeletePropagationBackground
	require.NoError(w, w.Instances.In(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	require.NoError(w, w.Configurations.In(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	require.NoError(w, w.Pods.In(w.namespace).DeleteCollection(ctx, *metav1.NewDeleteOptions(0), all))
	require.NoError(w, w.Jobs.In(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, all))
}

// start runs a controller until the returned function is called, which waits for its end.
func (w *world) start(change ...func(*brokercontroller.Config)) (stop func() error) {
	w.Helper()
	config := brokercontroller.Config{PendingMax: 5 * time.Minute, Namespace: w.namespace}
	for _, f := range change {
		f(&config)
	}
	access := server.Config()
	w.writes = &writes{namespace: w.namespace}
	access.Wrap(w.writes.count)
	if w.wrap != nil {
		access.Wrap(w.wrap)
	}
	w.metrics = prometheus.NewRegistry()
	env := service.Env{Log: zap.NewNop(), Metrics: w.metrics, Health: &admin.Health{}}
	config.REST = access
	s, err := brokercontroller.New(config, env)
	require.NoError(w, err)
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
	w.Cleanup(func() { require.NoError(w, stop()) })
	return stop
}

// writes to a namespace, Leases aside.
type writes struct {
	namespace string
	mu        sync.Mutex
	made      []string
}

func (w *writes) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		path := request.URL.Path
		if request.Method != http.MethodGet && strings.Contains(path, "/"+w.namespace+"/") && !strings.Contains(path, "/leases") {
			w.mu.Lock()
			w.made = append(w.made, request.Method+" "+path)
			w.mu.Unlock()
		}
		return next.RoundTrip(request)
	})
}

// list returns them without the namespace.
func (w *writes) list() (made []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, write := range w.made {
		before, after, _ := strings.Cut(write, " ")
		made = append(made, before+" "+path.Base(after))
	}
	return made
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (w *world) configuration(name, spec string) *akriv0.Configuration {
	w.Helper()
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
	require.NoError(w, yaml.UnmarshalStrict([]byte(spec), &c.Spec))
	c.Spec.DiscoveryHandler.Name = "debugEcho"
	created, err := w.Configurations.In(w.namespace).Create(w.Context(), c, metav1.CreateOptions{})
	require.NoError(w, err)
	return created
}

func (w *world) edit(name, spec string) {
	w.Helper()
	c, err := w.Configurations.In(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	c.Spec = akriv0.ConfigurationSpec{}
	require.NoError(w, yaml.UnmarshalStrict([]byte(spec), &c.Spec))
	c.Spec.DiscoveryHandler.Name = "debugEcho"
	_, err = w.Configurations.In(w.namespace).Update(w.Context(), c, metav1.UpdateOptions{})
	require.NoError(w, err)
}

// caughtUp returns when the controller knows what became of Configurations until now: it hears of
// them in order, but of Instances sooner or later than that. What it needs for this is gone
// afterwards.
func (w *world) caughtUp() {
	w.Helper()
	w.instance(w.configuration("later", oneJob), "8120fe", 1, "node-a")
	hasJob := func() bool { return slices.Contains(w.jobNames(), "later-8120fe-1-job") }
	w.eventually(hasJob, "the Job of a later Configuration")
	require.NoError(w, w.Instances.In(w.namespace).Delete(w.Context(), "later-8120fe", metav1.DeleteOptions{}))
	require.NoError(w, w.Configurations.In(w.namespace).Delete(w.Context(), "later", metav1.DeleteOptions{}))
	w.eventually(func() bool { return !hasJob() }, "the Job to be gone")
}

// instance is shared when it has more than one node.
func (w *world) instance(of *akriv0.Configuration, digest string, capacity int32, nodes ...string) *akriv0.Instance {
	w.Helper()
	instance := &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{
			Name: akriv0.InstanceName(of.Name, digest), Namespace: w.namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(of, akriv0.GroupVersion.WithKind("Configuration"))},
		},
		Spec: akriv0.InstanceSpec{
			ConfigurationName: of.Name, CDIName: akriv0.CDIName(of.Name, digest), Capacity: capacity, Nodes: nodes, Shared: len(nodes) > 1,
		},
	}
	created, err := w.Instances.In(w.namespace).Create(w.Context(), instance, metav1.CreateOptions{})
	require.NoError(w, err)
	return created
}

func (w *world) patchInstance(name, patch string) {
	w.Helper()
	_, err := w.Instances.In(w.namespace).Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w, err)
}

func (w *world) podNames() []string {
	pods, err := w.Pods.In(w.namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	names := []string{}
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	return names
}

func (w *world) jobNames() []string {
	jobs, err := w.Jobs.In(w.namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	names := []string{}
	for _, job := range jobs.Items {
		names = append(names, job.Name)
	}
	return names
}

func (w *world) serviceNames() []string {
	services, err := w.Services.In(w.namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	names := []string{}
	for _, s := range services.Items {
		names = append(names, s.Name)
	}
	return names
}

func (w *world) pod(name string) *corev1.Pod {
	pod, err := w.Pods.In(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &corev1.Pod{}
	}
	require.NoError(w, err)
	return pod
}

// scheduled binds the Pod to the node: from then on only its kubelet ends it.
func (w *world) scheduled(node, pod string) {
	w.Helper()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	client, err := kubernetes.NewForConfig(server.Config())
	require.NoError(w, err)
	require.NoError(w, client.CoreV1().Pods(w.namespace).Bind(w.Context(), binding, metav1.CreateOptions{}))
}

// gone is what the kubelet says when the containers have ended.
func (w *world) gone(pod string) {
	w.Helper()
	require.NoError(w, w.Pods.In(w.namespace).Delete(w.Context(), pod, *metav1.NewDeleteOptions(0)))
}

// kubelet says what a kubelet would of the Pods.
func (w *world) kubelet(phase corev1.PodPhase, started time.Time, pods ...string) {
	w.Helper()
	for _, name := range pods {
		pod, start := w.pod(name), metav1.NewTime(started)
		pod.Status.Phase, pod.Status.StartTime = phase, &start
		_, err := w.Pods.In(w.namespace).UpdateStatus(w.Context(), pod, metav1.UpdateOptions{})
		require.NoError(w, err)
	}
}

func (w *world) eventually(condition func() bool, what string) {
	w.Helper()
	require.Eventually(w, condition, within, poll, what)
}

func (w *world) eventuallyNames(names func() []string, want ...string) {
	w.Helper()
	require.EventuallyWithT(w, func(c *assert.CollectT) { require.Equal(c, fmt.Sprint(want), fmt.Sprint(names())) }, within, poll)
}

func (w *world) hasEvent(object, reason, text string) {
	w.Helper()
	w.eventually(func() bool {
		events, err := w.Events.In(w.namespace).List(w.Context(), metav1.ListOptions{})
		require.NoError(w, err)
		for _, event := range events.Items {
			if event.InvolvedObject.Name == object && event.Reason == reason && strings.Contains(event.Message, text) {
				return true
			}
		}
		return false
	}, "an Event "+reason+" on "+object)
}
