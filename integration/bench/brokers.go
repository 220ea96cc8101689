package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
	"akri.sh/integration/process"
)

const (
	burstName    = "burst"
	burstSize    = 1000
	burstNode    = "node-a"
	burstTimeout = 5 * time.Minute
	// ofController selects the Pods and Services of broker-controller.
	ofController = "controller=akri.sh"
	// parallelRequests is the limit for creating the burst and for simulating the scheduler and the
	// kubelets.
	parallelRequests = 8
)

// burst is the reaction of broker-controller to a thousand devices that appear at the same time.
type burst struct {
	// pods is the time from the Instances to the last Pod, services from running Pods to the last
	// Service.
	pods, services time.Duration
	memory         usage
	// writes are the API writes of an idle minute without Leases.
	writes map[string]float64
}

// brokers measures broker-controller and prints the results.
func (b *bench) brokers(ctx context.Context) error {
	result, err := b.burst(ctx)
	if err != nil {
		return fmt.Errorf("measure brokers: %w", err)
	}
	b.printBurst(result)
	return nil
}

func (b *bench) burst(ctx context.Context) (result *burst, err error) {
	api, err := kubetest.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer api.Stop()
	clients, err := mesh.NewClients(api.Config())
	if err != nil {
		return nil, err
	}

	controller, err := process.Start(ctx, api, "broker-controller", "--admin-address=", "--log-level=error")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, controller.Stop()) }()

	// The controller is the leader after the first Pod.
	if err := createBurst(ctx, clients, "warm-up", 1); err != nil {
		return nil, err
	}
	b.progress("creating %d Instances in parallel", burstSize)
	result = &burst{}
	start := time.Now()
	if err := createBurst(ctx, clients, burstName, burstSize); err != nil {
		return nil, err
	}
	result.pods = time.Since(start)

	pods, err := clients.Kubernetes.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: ofController})
	if err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	if err := bindPods(ctx, clients, pods.Items); err != nil {
		return nil, err
	}

	start = time.Now()
	if err := setPodsReady(ctx, clients, pods.Items); err != nil {
		return nil, err
	}
	result.services = time.Since(start)

	if result.memory, err = readUsage("broker-controller", controller.PID()); err != nil {
		return nil, err
	}
	b.progress("counting API writes of the idle controller for %s", idleDuration)
	result.writes, err = idleWrites(ctx, clients)
	return result, err
}

// createBurst creates a Configuration with count Instances and waits until each has its Pod.
func createBurst(ctx context.Context, c mesh.Clients, name string, count int) error {
	ctx, cancel := context.WithTimeout(ctx, burstTimeout)
	defer cancel()
	pods, err := c.Kubernetes.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: mesh.ConfigurationLabel + "=" + name})
	if err != nil {
		return fmt.Errorf("watch Pods: %w", err)
	}
	defer pods.Stop()

	owner, err := c.Configurations.In(namespace).Create(ctx, benchConfiguration(name), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Configuration: %w", err)
	}

	var group errgroup.Group
	group.SetLimit(parallelRequests)
	group.Go(func() error { return awaitAdded(ctx, pods, count) })
	for i := range count {
		group.Go(func() error {
			_, err := c.Instances.In(namespace).Create(ctx, benchInstance(owner, i), metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

// awaitAdded waits for count Added events.
func awaitAdded(ctx context.Context, events watch.Interface, count int) error {
	seen := 0
	_, err := watchtools.UntilWithoutRetry(ctx, events, func(event watch.Event) (bool, error) {
		if event.Type == watch.Added {
			seen++
		}
		return seen == count, nil
	})
	if err != nil {
		return fmt.Errorf("received %d of %d events: %w", seen, count, err)
	}
	return nil
}

// awaitDevices awaits slices that have so many devices.
func awaitDevices(ctx context.Context, events watch.Interface, count int) error {
	seen := map[string]int{} // by slice
	total := 0
	_, err := watchtools.UntilWithoutRetry(ctx, events, func(event watch.Event) (bool, error) {
		if slice, ok := event.Object.(*resourcev1.ResourceSlice); ok {
			total += len(slice.Spec.Devices) - seen[slice.Name]
			seen[slice.Name] = len(slice.Spec.Devices)
		}
		return total == count, nil
	})
	if err != nil {
		return fmt.Errorf("received %d of %d devices: %w", total, count, err)
	}
	return nil
}

func benchConfiguration(name string) *akriv0.Configuration {
	// Headless, because the API server's range has too few addresses.
	service := &corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}
	container := corev1.Container{Name: "broker", Image: "ghcr.io/akri-mesh/sample-broker:dev", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"{{PLACEHOLDER}}": resource.MustParse("1")},
	}}
	return &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: akriv0.ConfigurationSpec{
			DiscoveryHandler:         akriv0.DiscoveryHandler{Name: "debugEcho"},
			BrokerSpec:               &akriv0.BrokerSpec{BrokerPodSpec: &corev1.PodSpec{Containers: []corev1.Container{container}}},
			InstanceServiceSpec:      service,
			ConfigurationServiceSpec: service,
		},
	}
}

func benchInstance(owner *akriv0.Configuration, i int) *akriv0.Instance {
	digest := fmt.Sprintf("%06x", i)
	name := akriv0.InstanceName(owner.Name, digest)
	return &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, akriv0.GroupVersion.WithKind("Configuration"))},
		},
		Spec: akriv0.InstanceSpec{
			ConfigurationName: owner.Name, CDIName: akriv0.CDIName(owner.Name, digest), Capacity: 1, Nodes: []string{burstNode},
			DeviceUsage: map[string]string{name + "-0": ""}, BrokerProperties: map[string]string{"DEBUG_ECHO_DESCRIPTION": digest},
		},
	}
}

// bindPods binds the Pods to their node, as the scheduler does. After a minute without it, the
// conditions of their Configurations would state that the scheduler has not decided.
func bindPods(ctx context.Context, c mesh.Clients, pods []corev1.Pod) error {
	var group errgroup.Group
	group.SetLimit(parallelRequests)
	for _, pod := range pods {
		group.Go(func() error {
			return c.Kubernetes.CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: namespace},
				Target:     corev1.ObjectReference{Kind: "Node", Name: burstNode},
			}, metav1.CreateOptions{})
		})
	}
	return group.Wait()
}

// setPodsReady sets the Pods to Running and ready, as kubelets do, and waits until each has its
// Service.
func setPodsReady(ctx context.Context, c mesh.Clients, pods []corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, burstTimeout)
	defer cancel()
	services, err := c.Kubernetes.CoreV1().Services(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: ofController})
	if err != nil {
		return fmt.Errorf("watch Services: %w", err)
	}
	defer services.Stop()

	var group errgroup.Group
	group.SetLimit(parallelRequests)
	group.Go(func() error { return awaitAdded(ctx, services, len(pods)+2) }) // and those of both Configurations
	for _, pod := range pods {
		group.Go(func() error {
			patch := []byte(`{"status":{"phase":"Running","startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"Ready","status":"True"}]}}`)
			_, err := c.Kubernetes.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			return err
		})
	}
	return group.Wait()
}

func idleWrites(ctx context.Context, c mesh.Clients) (map[string]float64, error) {
	// The controller handles the last changes and updates Events meanwhile.
	if err := cluster.Pause(ctx, idleDuration/2); err != nil {
		return nil, err
	}
	before, err := writesTo(ctx, c.Kubernetes)
	if err != nil {
		return nil, err
	}
	if err := cluster.Pause(ctx, idleDuration); err != nil {
		return nil, err
	}
	after, err := writesTo(ctx, c.Kubernetes)
	if err != nil {
		return nil, err
	}
	return writesSince(before, after), nil
}

func (b *bench) printBurst(result *burst) {
	fmt.Fprintf(b.Out, "\n| broker-controller and %d Instances, without kubelets | |\n|---|---|\n", burstSize)
	fmt.Fprintf(b.Out, "| Instances created → all broker Pods seen | %.1f s |\n", result.pods.Seconds())
	fmt.Fprintf(b.Out, "| Pods set to Running → all Services seen | %.1f s |\n", result.services.Seconds())
	fmt.Fprintf(b.Out, "| memory afterwards | RSS %.1f MiB, private %.1f MiB |\n", mib(result.memory.resident), mib(result.memory.private))
	fmt.Fprintf(b.Out, "| API writes in an idle minute, without Leases | %s |\n", orNone(result.writes))
}
