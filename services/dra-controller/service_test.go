package dracontroller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"

	"akri.sh/libs/admin"
	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/service"
	dracontroller "akri.sh/services/dra-controller"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const timeout = time.Minute

// fixture is a controller on the API server. Its methods act as instance-writer and the chart.
type fixture struct {
	*testing.T
	server         *kubetest.Server
	clientset      *kubernetes.Clientset
	instances      *kube.Client[*akriv0.Instance, *akriv0.InstanceList]
	configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]

	mu     sync.Mutex
	writes []string // the method and the name of each object
	// logged are the warnings of the controller.
	logged *observer.ObservedLogs
	// unsupported is a field that the API server drops.
	unsupported atomic.Pointer[string]
}

const namespace = "default"

// start starts a controller on an empty API server with the nodes a and b, and the DeviceClass of
// the chart.
func start(t *testing.T) *fixture { return startOn(t, server) }

func startOn(t *testing.T, server *kubetest.Server) *fixture {
	f := newFixture(t, server)
	create(t, f.clientset.ResourceV1().DeviceClasses(), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: akriv0.Driver}})
	f.run(dracontroller.Config{})
	return f
}

// newFixture returns a fixture with the nodes a and b, without a controller.
func newFixture(t *testing.T, server *kubetest.Server) *fixture {
	f := &fixture{T: t, server: server}
	var err error
	f.clientset, err = kubernetes.NewForConfig(server.Config())
	require.NoError(t, err)
	f.instances, err = kube.Instances(server.Config())
	require.NoError(t, err)
	f.configurations, err = kube.Configurations(server.Config())
	require.NoError(t, err)
	f.addNode("a")
	f.addNode("b")
	t.Cleanup(f.clear)
	return f
}

// creator is a typed client.
type creator[T runtime.Object] interface {
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
}

func create[T runtime.Object](t *testing.T, client creator[T], object T) {
	t.Helper()
	_, err := client.Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
}

// run starts a controller until the test ends.
func (f *fixture) run(config dracontroller.Config) *admin.Health {
	core, logged := observer.New(zap.WarnLevel)
	f.logged = logged
	config.Namespace, config.BindingTimeout = namespace, 2*time.Second
	if config.REST == nil {
		config.REST = f.server.Config()
	}
	config.REST.Wrap(f.record)
	health := &admin.Health{}
	s, err := dracontroller.New(config, service.Env{Log: zap.New(core), Metrics: prometheus.NewRegistry(), Health: health})
	require.NoError(f, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		require.NoError(f, <-done)
	})
	return health
}

func (f *fixture) clear() {
	ctx, all := context.Background(), metav1.ListOptions{}
	require.NoError(f, f.instances.In(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	require.NoError(f, f.configurations.In(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	require.NoError(f, f.clientset.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, all))
	for _, err := range []error{
		f.clientset.ResourceV1().DeviceClasses().DeleteCollection(ctx, metav1.DeleteOptions{}, all),
		f.clientset.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, all),
	} {
		if !apierrors.IsNotFound(err) { // as without the API
			require.NoError(f, err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// record records the writes of the controller, except those of settle and those that are not
// stored.
func (f *fixture) record(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method != http.MethodGet && !request.URL.Query().Has("dryRun") {
			name := path.Base(request.URL.Path)
			if request.Method == http.MethodPost {
				name = f.nameInBody(request)
			}
			if !strings.Contains(name, "settle-") {
				f.mu.Lock()
				f.writes = append(f.writes, request.Method+" "+name)
				f.mu.Unlock()
			}
		}
		return next.RoundTrip(request)
	})
}

// nameInBody returns the name of the object that a request creates. It removes the unsupported
// field from the request, which it sends as JSON.
func (f *fixture) nameInBody(request *http.Request) string {
	body, err := io.ReadAll(request.Body)
	require.NoError(f, err)
	object, kind, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	require.NoError(f, err)
	object.GetObjectKind().SetGroupVersionKind(*kind)
	body, err = json.Marshal(object)
	require.NoError(f, err)

	if unsupported := f.unsupported.Load(); unsupported != nil {
		body = bytes.ReplaceAll(body, []byte(*unsupported), nil)
	}
	request.Header.Set("Content-Type", runtime.ContentTypeJSON)
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return object.(metav1.Object).GetName()
}

// written returns the writes since the last call.
func (f *fixture) written() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	written := f.writes
	f.writes = nil
	return written
}

func (f *fixture) addNode(name string) {
	create(f.T, f.clientset.CoreV1().Nodes(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
	})
}

// addConfiguration returns when the controller has seen the Configuration: it writes devices of one
// that it has not seen a second time.
func (f *fixture) addConfiguration(name string) {
	f.Helper()
	create(f.T, f.configurations.In(namespace), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{Name: "debugEcho"}},
	})
	f.eventually(func() bool { return slices.Contains(f.classes(), name+".akri.sh") })
}

func (f *fixture) addInstance(name string, shared bool, nodes ...string) {
	create(f.T, f.instances.In(namespace), &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       akriv0.InstanceSpec{ConfigurationName: "cameras", CDIName: "akri.sh/cameras=x", Capacity: 2, Shared: shared, Nodes: nodes},
	})
}

func (f *fixture) editInstance(name string, edit func(*akriv0.Instance)) {
	f.Helper()
	kubetest.Edit(f, f.instances.In(namespace), name, edit)
}

func (f *fixture) eventually(condition func() bool) {
	f.Helper()
	require.Eventually(f, condition, timeout, 10*time.Millisecond)
}

// slice returns the ResourceSlice that has the device of the Instance, or nil.
func (f *fixture) slice(instance string) *resourcev1.ResourceSlice {
	f.Helper()
	list, err := f.clientset.ResourceV1().ResourceSlices().List(f.Context(), metav1.ListOptions{})
	require.NoError(f, err)
	for _, slice := range list.Items {
		if len(devicesIn(&slice, instance)) > 0 {
			return &slice
		}
	}
	return nil
}

// devicesIn returns the device of the Instance in a slice, or its slots.
func devicesIn(slice *resourcev1.ResourceSlice, instance string) (found []resourcev1.Device) {
	for _, device := range slice.Spec.Devices {
		if name := device.Attributes["instance"].StringValue; name != nil && *name == instance {
			found = append(found, device)
		}
	}
	return found
}

func (f *fixture) awaitSlots(instance string, expected int64) {
	f.Helper()
	f.eventually(func() bool {
		slice := f.slice(instance)
		if slice == nil {
			return expected == 0
		}
		devices := devicesIn(slice, instance)
		if devices[0].AllowMultipleAllocations == nil {
			return int64(len(devices)) == expected
		}
		slots := devices[0].Capacity["slots"].Value
		return slots.Value() == expected
	})
}

func (f *fixture) classes() []string {
	list, err := f.clientset.ResourceV1().DeviceClasses().List(f.Context(), metav1.ListOptions{})
	require.NoError(f, err)
	var names []string
	for _, class := range list.Items {
		names = append(names, class.Name)
	}
	return names
}

// settle waits until the controller has seen all changes of Nodes, Instances and Configurations. It
// returns the writes since the last call.
func (f *fixture) settle() []string {
	f.Helper()
	name := fmt.Sprintf("settle-%d", settleCount.Add(1))
	f.addNode(name)
	f.addInstance(name, false, name)
	f.addConfiguration(name + "-configuration")
	f.awaitSlots(name, 2)
	return f.written()
}

var settleCount atomic.Int32

func TestObjectsFollowInstances(t *testing.T) {
	f := start(t)
	f.addConfiguration("cameras")
	f.addInstance("cameras-8120fe", true, "a", "b")
	f.awaitSlots("cameras-8120fe", 2)
	f.eventually(func() bool { return len(f.classes()) == 3 })
	require.ElementsMatch(t, []string{"akri.sh", "cameras.akri.sh", "cameras-8120fe.akri.sh"}, f.classes())
	require.ElementsMatch(t, []string{"POST cameras.akri.sh", "POST cameras-8120fe.akri.sh", "POST default.configuration.cameras.0.akri.sh"}, f.settle())
	require.Equal(t, []string{"a", "b"}, f.slice("cameras-8120fe").Spec.NodeSelector.NodeSelectorTerms[0].MatchExpressions[0].Values)
	require.Equal(t, "DeviceClass", f.slice("cameras-8120fe").OwnerReferences[0].Kind)

	f.editInstance("cameras-8120fe", func(i *akriv0.Instance) { i.Spec.DeviceUsage = map[string]string{"cameras-8120fe-0": "a"} })
	f.awaitSlots("cameras-8120fe", 1)
	require.EqualValues(t, 1, f.slice("cameras-8120fe").Spec.Pool.Generation, "the pool stays complete")
	require.Equal(t, []string{"PUT default.configuration.cameras.0.akri.sh"}, f.settle(), "one write for one change")

	f.editInstance("cameras-8120fe", func(i *akriv0.Instance) {
		i.Spec.DeviceUsage = map[string]string{"cameras-8120fe-0": "a", "cameras-8120fe-1": "D:uid:b"}
	})
	require.Empty(t, f.settle(), "a slot of a ResourceClaim changes nothing")
	f.editInstance("cameras-8120fe", func(i *akriv0.Instance) { i.Spec.DeviceUsage["cameras-8120fe-1"] = "b" })
	f.awaitSlots("cameras-8120fe", 0)
	f.editInstance("cameras-8120fe", func(i *akriv0.Instance) { i.Spec.DeviceUsage = nil })
	f.awaitSlots("cameras-8120fe", 2)

	require.NoError(t, f.instances.In(namespace).Delete(t.Context(), "cameras-8120fe", metav1.DeleteOptions{}))
	require.NoError(t, f.configurations.In(namespace).Delete(t.Context(), "cameras", metav1.DeleteOptions{}))
	f.awaitSlots("cameras-8120fe", 0)
	f.eventually(func() bool { return !strings.Contains(strings.Join(f.classes(), " "), "cameras") })
}

// The slice of a removed device stays with a taint, so that Kubernetes evicts the Pods that use it.
func TestLostDevices(t *testing.T) {
	f := start(t)
	f.addConfiguration("cameras")
	kubetest.Edit(t, f.configurations.In(namespace), "cameras", func(configuration *akriv0.Configuration) {
		configuration.Annotations = map[string]string{akriv0.LostDevicesAnnotation: akriv0.EvictPods}
	})
	f.addInstance("cameras-8120fe", true, "a")
	f.awaitSlots("cameras-8120fe", 2)
	f.settle()
	taints := func() []resourcev1.DeviceTaint { return f.slice("cameras-8120fe").Spec.Devices[0].Taints }
	require.Empty(t, taints())
	lose := func() {
		require.NoError(t, f.instances.In(namespace).Delete(t.Context(), "cameras-8120fe", metav1.DeleteOptions{}))
		f.eventually(func() bool { return len(taints()) == 1 })
	}

	lose()
	require.Equal(t, "akri.sh/lost NoExecute", taints()[0].Key+" "+string(taints()[0].Effect))
	require.Contains(t, f.settle(), "PUT default.configuration.cameras.0.akri.sh")
	require.Empty(t, f.settle(), "one write for one change")
	f.addInstance("cameras-8120fe", true, "a")
	f.eventually(func() bool { return len(taints()) == 0 })

	lose()
	kubetest.Edit(t, f.clientset.ResourceV1().ResourceSlices(), f.slice("cameras-8120fe").Name, func(lost *resourcev1.ResourceSlice) {
		lost.Spec.Devices[0].Taints[0].TimeAdded = new(metav1.NewTime(time.Now().Add(-time.Hour)))
	})
	f.awaitSlots("cameras-8120fe", 0)
}

func TestLabelOfNode(t *testing.T) {
	f := start(t)
	f.addInstance("cameras-8120fe", true, "a", "b")
	f.addInstance("cameras-a19705", false, "a")
	f.awaitSlots("cameras-a19705", 2)
	require.Nil(t, f.slice("cameras-a19705").Spec.NodeName, "a kubelet deletes slices with the name of its node")
	require.Equal(t, []string{"a"}, f.slice("cameras-a19705").Spec.NodeSelector.NodeSelectorTerms[0].MatchFields[0].Values)
	f.label("a", akriv0.ResourcesDevicePlugin)
	f.awaitSlots("cameras-a19705", 0)
	f.eventually(func() bool {
		return len(f.slice("cameras-8120fe").Spec.NodeSelector.NodeSelectorTerms[0].MatchExpressions[0].Values) == 1
	})
	f.label("a", "")
	f.awaitSlots("cameras-a19705", 2)
	f.settle()
	kubetest.EditStatus(t, f.clientset.CoreV1().Nodes(), "a", func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
	require.Empty(t, f.settle(), "the status of a Node changes nothing")
}

// Objects that others delete or edit are restored. ResourceSlices of the driver that others create
// are deleted: a kubelet may create those of its node.
func TestForeignChanges(t *testing.T) {
	f := start(t)
	f.addInstance("cameras-a19705", false, "a")
	f.awaitSlots("cameras-a19705", 2)
	client := f.clientset.ResourceV1().ResourceSlices()
	require.NoError(t, client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	f.awaitSlots("cameras-a19705", 2)

	forged := f.slice("cameras-a19705").DeepCopy()
	forged.ObjectMeta = metav1.ObjectMeta{Name: "forged"}
	forged.Spec.Pool.Name = "forged"
	create(t, client, forged)
	f.eventually(func() bool {
		_, err := client.Get(t.Context(), "forged", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})

	kubetest.Edit(t, client, f.slice("cameras-a19705").Name, func(edited *resourcev1.ResourceSlice) {
		edited.Spec.Devices[0].Attributes = nil
	})
	f.awaitSlots("cameras-a19705", 2)
}

// An API server that is replaced by an earlier version drops fields.
func TestReplacedAPIServer(t *testing.T) {
	f := start(t)
	field := `,"extendedResourceName":"akri.sh/cameras"`
	f.unsupported.Store(&field)
	f.addConfiguration("cameras")
	f.eventually(func() bool {
		return f.logged.FilterField(zap.String("name", "cameras.akri.sh")).Len() > 0
	})
	entry := f.logged.FilterField(zap.String("name", "cameras.akri.sh")).All()[0]
	require.Contains(t, entry.ContextMap()["error"], "all API servers must have the same version")
}

// startWithCamera starts a controller that has published the shared device cameras-000001. It
// returns a function that awaits the next write of its slice.
func startWithCamera(t *testing.T) (claims resourceclient.ResourceClaimInterface, awaitWrite func()) {
	f := start(t)
	f.addConfiguration("cameras")
	f.addInstance("cameras-000001", true, "a")
	f.awaitSlots("cameras-000001", 2)
	version := f.slice("cameras-000001").ResourceVersion
	return f.clientset.ResourceV1().ResourceClaims(namespace), func() {
		f.eventually(func() bool { return f.slice("cameras-000001").ResourceVersion != version })
		slice := f.slice("cameras-000001")
		version = slice.ResourceVersion
		require.EqualValues(t, 1, slice.Spec.Pool.Generation, "the pool stays complete")
	}
}

// A claim that is deleted while a device is allocated to it causes a write, because the scheduler
// does not retry the Pods that wait for the device.
func TestClaimDeletedWithItsDevice(t *testing.T) {
	claims, awaitWrite := startWithCamera(t)
	remove := func(name string, deallocated bool) {
		create(t, claims, &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
				{Name: "camera", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: akriv0.Driver}},
			}}},
		})
		for _, allocation := range []*resourcev1.AllocationResult{
			{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
				{Request: "camera", Driver: akriv0.Driver, Pool: akriv0.DevicePool(namespace, "cameras", "", "cameras-000001"), Device: "cameras-000001"},
			}}},
			nil,
		} {
			kubetest.EditStatus(t, claims, name, func(claim *resourcev1.ResourceClaim) { claim.Status.Allocation = allocation })
			if !deallocated {
				break
			}
		}
		require.NoError(t, claims.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	remove("deallocated", true)
	remove("allocated", false)
	awaitWrite()
	// The scheduler counts an allocation twice for a moment. Then the slice is written again, once
	// for several claims.
	awaitWrite()
}

// The garbage collector deletes the claim of extended resources of a Pod that was deleted while the
// scheduler bound it. The scheduler can keep the device for a while, and does not retry the Pods
// that wait for it.
func TestClaimDeletedWhileItIsBound(t *testing.T) {
	claims, awaitWrite := startWithCamera(t)
	for _, class := range []string{"cameras.akri.sh", "cameras-000001.akri.sh"} {
		create(t, claims, &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "bound", Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
				{Name: "container-0-request-0", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}},
			}}},
		})
		require.NoError(t, claims.Delete(t.Context(), "bound", metav1.DeleteOptions{}))
		awaitWrite()
		awaitWrite()
	}
}

// TestWriteAfterEachClaim changes claims one after the other, faster than the scheduler retries
// Pods after one of them. The slice is written again when the delay after the last one is over,
// too.
func TestWriteAfterEachClaim(t *testing.T) {
	const delay = 2 * time.Second
	allocation := &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "request", Driver: akriv0.Driver, Pool: akriv0.DevicePool(namespace, "cameras", "", "cameras-000001"), Device: "cameras-000001"},
	}}}
	for name, change := range map[string]func(claims resourceclient.ResourceClaimInterface, claim string){
		"deleted while it is bound": func(claims resourceclient.ResourceClaimInterface, claim string) {
			require.NoError(t, claims.Delete(t.Context(), claim, metav1.DeleteOptions{}))
		},
		"allocated": func(claims resourceclient.ResourceClaimInterface, claim string) {
			kubetest.EditStatus(t, claims, claim, func(claim *resourcev1.ResourceClaim) { claim.Status.Allocation = allocation })
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			claims := f.clientset.ResourceV1().ResourceClaims(namespace)
			f.addConfiguration("cameras")
			f.addInstance("cameras-000001", true, "a")
			f.awaitSlots("cameras-000001", 2)

			var last time.Time
			for i := range 6 {
				claim := &resourcev1.ResourceClaim{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("claim-", i), Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}},
					Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
						{Name: "request", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: akriv0.DeviceClassName("cameras-000001")}},
					}}},
				}
				create(t, claims, claim)
				t.Cleanup(func() { _ = claims.Delete(context.WithoutCancel(t.Context()), claim.Name, metav1.DeleteOptions{}) })
				<-time.After(rand.N(delay / 4))
				last = time.Now()
				change(claims, claim.Name)
			}

			f.eventually(func() bool {
				written, err := time.Parse(time.RFC3339Nano, f.slice("cameras-000001").Annotations["akri.sh/written-again"])
				return err == nil && written.Sub(last) >= delay
			})
		})
	}
}

// Kubernetes 1.34 and 1.35 have no optional features: each slot is a device, and classes have no
// extended resource. No write is repeated.
func TestEarlierVersion(t *testing.T) {
	earlier, err := kubetest.Start(t.Context(), "--emulated-version=kube=1.34")
	require.NoError(t, err)
	t.Cleanup(earlier.Stop)
	f := startOn(t, earlier)
	f.addConfiguration("cameras")
	f.addInstance("cameras-8120fe", true, "a", "b")
	f.awaitSlots("cameras-8120fe", 2)
	require.ElementsMatch(t, []string{"POST cameras.akri.sh", "POST cameras-8120fe.akri.sh", "POST default.cameras-8120fe.0.akri.sh"}, f.settle())
	class, err := f.clientset.ResourceV1().DeviceClasses().Get(t.Context(), "cameras.akri.sh", metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, class.Spec.ExtendedResourceName)

	f.editInstance("cameras-8120fe", func(i *akriv0.Instance) {
		i.Spec.DeviceUsage = map[string]string{"cameras-8120fe-0": "a", "cameras-8120fe-1": "D:uid:b"}
	})
	f.awaitSlots("cameras-8120fe", 1)
	require.Equal(t, "cameras-8120fe-1", f.slice("cameras-8120fe").Spec.Devices[0].Name)
	require.Equal(t, []string{"PUT default.cameras-8120fe.0.akri.sh"}, f.settle(), "one write for one change")
	require.Empty(t, f.settle())
	require.Zero(t, f.logged.Len(), "%v", f.logged.All())
}

// A device that was published in a pool of its own, before the API server had consumable capacity,
// stays there while a claim has it: the scheduler counts its slots by pool and device. It is never
// in two pools.
func TestPoolOfAnAllocatedClaim(t *testing.T) {
	f := start(t)
	pools := func() (found []string) {
		list, err := f.clientset.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, slice := range list.Items {
			if len(devicesIn(&slice, "cameras-8120fe")) > 0 {
				found = append(found, slice.Spec.Pool.Name)
			}
		}
		require.LessOrEqual(t, len(found), 1)
		return found
	}
	earlier := akriv0.InstancePool(namespace, "cameras-8120fe")
	claims := f.clientset.ResourceV1().ResourceClaims(namespace)
	create(t, claims, &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "running"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "camera", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: akriv0.Driver}},
		}}},
	})
	allocate := func(allocation *resourcev1.AllocationResult) {
		kubetest.EditStatus(t, claims, "running", func(claim *resourcev1.ResourceClaim) { claim.Status.Allocation = allocation })
	}
	allocate(&resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "camera", Driver: akriv0.Driver, Pool: earlier, Device: "cameras-8120fe"},
	}}})
	f.addInstance("cameras-8120fe", true, "a")
	f.addInstance("cameras-a19705", true, "a")
	f.eventually(func() bool { return slices.Equal(pools(), []string{earlier}) })
	f.awaitSlots("cameras-a19705", 2)

	allocate(nil)
	f.eventually(func() bool { return slices.Equal(pools(), []string{"default/configuration/cameras"}) })
	require.Len(t, f.slice("cameras-8120fe").Spec.Devices, 2)
	require.NoError(t, claims.Delete(t.Context(), "running", metav1.DeleteOptions{}))
}

// Without the DeviceClass of the chart nothing is written. All objects belong to the next one.
func TestOwner(t *testing.T) {
	f := start(t)
	classes := f.clientset.ResourceV1().DeviceClasses()
	f.addInstance("cameras-8120fe", true, "a")
	f.awaitSlots("cameras-8120fe", 2)
	f.settle()
	require.NoError(t, classes.Delete(t.Context(), akriv0.Driver, metav1.DeleteOptions{}))
	f.addInstance("cameras-a19705", true, "a")
	create(t, classes, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: akriv0.Driver}})
	owner, err := classes.Get(t.Context(), akriv0.Driver, metav1.GetOptions{})
	require.NoError(t, err)
	f.awaitSlots("cameras-a19705", 2)
	f.eventually(func() bool {
		return f.slice("cameras-8120fe").OwnerReferences[0].UID == owner.UID && f.slice("cameras-a19705").OwnerReferences[0].UID == owner.UID
	})
}
