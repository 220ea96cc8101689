package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/cluster"
	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/mesh"
	"akri.sh/integration/process"
	"akri.sh/integration/simulation"
)

const (
	cycleNodes, cycleReplicas = 6, 2
	cyclePause                = 100 * time.Millisecond
	cycleTermination          = 200 * time.Millisecond // at most, of a broker
	cycleDefault              = 10 * time.Second
	// cycleLimit is below the 30 s of each timer with which a service corrects what it has missed:
	// a step that takes longer has waited for one.
	cycleLimit = 20 * time.Second
)

// cycles plugs a device in and out on each node, over and over.
type cycles struct {
	*simulation.Environment
	configuration *akriv0.Configuration
	terminating   errgroup.Group

	mu    sync.Mutex
	steps map[string][]time.Duration
}

// TestCycles checks that an Instance, its device for the scheduler and a broker with that device
// follow each change of a device, and that no service misses one. The next Instance and its broker
// have the names of the previous ones, of which the broker may still terminate. kube-scheduler and
// the controllers of Kubernetes are real, the kubelets only end Pods. AKRI_CYCLES sets the
// duration.
func TestCycles(t *testing.T) {
	c := newCycles(t)

	ctx, stop := context.WithTimeout(t.Context(), durationFrom(t, "AKRI_CYCLES", cycleDefault))
	defer stop()
	var group errgroup.Group
	for _, node := range c.Nodes {
		node.Start(ctx)
		group.Go(func() error {
			for ctx.Err() == nil {
				if err := c.cycle(t.Context(), node); err != nil {
					return fmt.Errorf("%s: %w", node.Name, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.NoError(t, c.terminating.Wait())

	for name, took := range c.steps {
		slices.Sort(took)
		t.Logf("%s: %d times, median %s, slowest %s", name, len(took), took[len(took)/2], took[len(took)-1])
		require.Greater(t, len(took), cycleNodes)
	}

	events, err := c.Kubernetes.CoreV1().Events(simulation.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	unscheduled, withoutDevice := map[types.UID]bool{}, 0
	for _, event := range events.Items {
		if event.Reason == "FailedScheduling" {
			unscheduled[event.InvolvedObject.UID] = true
		}
		if strings.Contains(event.Message, "without its device") {
			withoutDevice++
		}
	}
	t.Logf("%d brokers could not be scheduled at once", len(unscheduled))
	t.Logf("%d brokers that were bound without their device were replaced", withoutDevice)
}

func newCycles(t *testing.T) *cycles {
	t.Helper()
	environment, err := simulation.New(t.Context(), simulation.Options{
		Nodes: cycleNodes, Replicas: cycleReplicas, Handlers: []string{"debugEcho"}, Progress: t.Logf,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, environment.Stop()) })

	_, err = environment.Kubernetes.ResourceV1().DeviceClasses().Create(t.Context(),
		&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: akriv0.Driver}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for service, flags := range map[string][]string{"broker-controller": {"--publication-timeout=2s"}, "dra-controller": nil} {
		flags = append(flags, "--admin-address=", "--log-level=error")
		controller, err := process.Start(t.Context(), environment.API, service, flags...)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, controller.Stop()) })
	}
	for _, node := range environment.Nodes {
		makeSchedulable(t, environment, node.Name)
	}
	startKubernetes(t, environment, "kube-scheduler")
	startKubernetes(t, environment, "kube-controller-manager", "--controllers=garbage-collector-controller,resourceclaim-controller")

	container := corev1.Container{Name: "broker", Image: "broker", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"{{PLACEHOLDER}}": resource.MustParse("1")},
	}}
	configuration, err := environment.Configurations.In(simulation.Namespace).Create(t.Context(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: "cycles", Namespace: simulation.Namespace},
		Spec: akriv0.ConfigurationSpec{
			DiscoveryHandler: akriv0.DiscoveryHandler{Name: "debugEcho"},
			BrokerSpec:       &akriv0.BrokerSpec{BrokerPodSpec: &corev1.PodSpec{Containers: []corev1.Container{container}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return &cycles{Environment: environment, configuration: configuration, steps: map[string][]time.Duration{}}
}

// makeSchedulable gives a Node what a kubelet reports.
func makeSchedulable(t *testing.T, e *simulation.Environment, name string) {
	t.Helper()
	nodes := e.Kubernetes.CoreV1().Nodes()
	node, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	node.Labels, node.Spec.Taints = map[string]string{corev1.LabelHostname: name}, nil
	node, err = nodes.Update(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)

	capacity := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	node.Status = corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// startKubernetes starts a program of the control plane. The default rate of requests would be the
// limit.
func startKubernetes(t *testing.T, e *simulation.Environment, name string, flags ...string) {
	t.Helper()
	binary, err := binaries.Path(name)
	require.NoError(t, err)
	flags = append(flags, "--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000", "--secure-port=0", "--v=0")
	program, err := process.StartBinary(e.API, binary, flags...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, program.Stop()) })
}

// cycle plugs the device of the node in and out.
func (c *cycles) cycle(ctx context.Context, node *simulation.Node) error {
	device := simulation.Device(c.configuration, node.Name, "device", false, nil)
	name := device.GetInstance()
	instances, pods, published := c.Instances.In(simulation.Namespace), c.Kubernetes.CoreV1().Pods(simulation.Namespace), c.Kubernetes.ResourceV1().ResourceSlices()
	named := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	ofDevice := func(slice *resourcev1.ResourceSlice) bool {
		return slices.ContainsFunc(slice.Spec.Devices, func(device resourcev1.Device) bool { return device.Name == name })
	}

	node.Set(c.configuration, device)
	var instance akriv0.Instance
	err := awaitCount(ctx, c, "Instance created", instances, named, 1, func(found *akriv0.Instance) bool {
		instance = *found
		return true
	})
	if err != nil {
		return err
	}
	var broker corev1.Pod
	err = awaitCount(ctx, c, "broker has the device", pods, brokersOf(name), 1, func(pod *corev1.Pod) bool {
		broker = *pod
		return metav1.IsControlledBy(pod, &instance) && pod.Spec.NodeName == node.Name && pod.Status.ExtendedResourceClaimStatus != nil
	})
	if err != nil {
		return err
	}
	if err := awaitCount(ctx, c, "device published", published, metav1.ListOptions{}, 1, ofDevice); err != nil {
		return err
	}
	if err := cluster.Pause(ctx, rand.N(cyclePause)); err != nil {
		return err
	}

	node.Remove(c.configuration, name)
	if err := awaitCount(ctx, c, "Instance deleted", instances, named, 0, func(*akriv0.Instance) bool { return true }); err != nil {
		return err
	}
	if rand.N(2) == 0 { // plugged in again at once
		c.terminating.Go(func() error { return c.terminate(ctx, &broker) })
		return nil
	}
	// The next broker is created at the same time as the DeviceClass of its device.
	if err := c.terminate(ctx, &broker); err != nil {
		return err
	}
	return awaitCount(ctx, c, "device withdrawn", published, metav1.ListOptions{}, 0, ofDevice)
}

func brokersOf(instance string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: mesh.InstanceLabel + "=" + instance}
}

// terminate does what a kubelet does with a broker that broker-controller deletes.
func (c *cycles) terminate(ctx context.Context, broker *corev1.Pod) error {
	pods := c.Kubernetes.CoreV1().Pods(broker.Namespace)
	err := awaitCount(ctx, c, "broker deleted", pods, brokersOf(broker.Labels[mesh.InstanceLabel]), 0, func(pod *corev1.Pod) bool {
		return pod.UID == broker.UID && pod.DeletionTimestamp == nil
	})
	if err != nil {
		return err
	}
	if err := cluster.Pause(ctx, rand.N(cycleTermination)); err != nil {
		return err
	}
	return pods.Delete(ctx, broker.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &broker.UID},
	})
}

// awaitCount waits until so many of the objects are the wanted ones, and records how long it took.
func awaitCount[T any, L runtime.Object](
	ctx context.Context, c *cycles, step string, objects mesh.Objects[L], options metav1.ListOptions, want int, is func(*T) bool,
) error {
	ctx, cancel := context.WithTimeout(ctx, cycleLimit)
	defer cancel()
	started := time.Now()
	err := mesh.AwaitObjects(ctx, step, objects, options, func(found []T) error {
		count := 0
		for i := range found {
			if is(&found[i]) {
				count++
			}
		}
		if count != want {
			return fmt.Errorf("%d of %d objects, want %d", count, len(found), want)
		}
		return nil
	})

	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps[step] = append(c.steps[step], time.Since(started))
	return err
}
