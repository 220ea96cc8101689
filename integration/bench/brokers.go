package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"

	"akri.sh/integration/mesh"
	"akri.sh/integration/programs"
)

const (
	burstSize   = 1000
	burstWithin = 5 * time.Minute
	// requestsAtOnce are those of whoever makes the burst, and of the one who plays the kubelets.
	requestsAtOnce = 8
	burstName      = "burst"
)

// burst is what broker-controller does about a thousand devices that appear at once.
type burst struct {
	// pods is how long it took until the last Pod was seen, and services from when they ran until the last Service was.
	pods, services time.Duration
	memory         usage
	// writes of an idle minute, leases aside.
	writes map[string]float64
}

// crowd is an API server without nodes, and a broker-controller on it.
type crowd struct {
	kubernetes     kubernetes.Interface
	configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	instances      *kube.Client[*akriv0.Instance, *akriv0.InstanceList]
	controller     *programs.Program
}

// brokers measures and prints.
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
	c, err := newCrowd(api.Config())
	if err != nil {
		return nil, err
	}
	if c.controller, err = programs.Start(ctx, api, "broker-controller", "--admin-address=", "--log-level=error"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.controller.Stop()) }()
	// One first: the controller leads then.
	if err := c.make(ctx, "warm", 1); err != nil {
		return nil, err
	}
	b.say("making %d Instances at once", burstSize)
	return c.measure(ctx, b)
}

func newCrowd(access *rest.Config) (c *crowd, err error) {
	c = &crowd{}
	if c.kubernetes, err = kubernetes.NewForConfig(access); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	if c.configurations, err = kube.Configurations(access); err != nil {
		return nil, err
	}
	c.instances, err = kube.Instances(access)
	return c, err
}

func (c *crowd) measure(ctx context.Context, b *bench) (*burst, error) {
	result := &burst{}
	began := time.Now()
	if err := c.make(ctx, burstName, burstSize); err != nil {
		return nil, err
	}
	result.pods = time.Since(began)
	began = time.Now()
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	result.services = time.Since(began)
	memory, err := readUsage("broker-controller", c.controller.PID())
	if err != nil {
		return nil, err
	}
	result.memory = memory
	b.say("counting writes while nothing happens, for %s", idleFor)
	result.writes, err = c.idleWrites(ctx)
	return result, err
}

// make makes a Configuration with so many Instances and waits until each has its Pod.
func (c *crowd) make(ctx context.Context, name string, count int) error {
	ctx, cancel := context.WithTimeout(ctx, burstWithin)
	defer cancel()
	pods, err := c.kubernetes.CoreV1().Pods(space).Watch(ctx, metav1.ListOptions{LabelSelector: mesh.ConfigurationLabel + "=" + name})
	if err != nil {
		return fmt.Errorf("watch Pods: %w", err)
	}
	defer pods.Stop()
	owner, err := c.configurations.In(space).Create(ctx, crowdConfiguration(name), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Configuration: %w", err)
	}
	var making errgroup.Group
	making.SetLimit(requestsAtOnce)
	making.Go(func() error { return added(ctx, pods, count) })
	for i := range count {
		making.Go(func() error {
			_, err := c.instances.In(space).Create(ctx, crowdInstance(owner, i), metav1.CreateOptions{})
			return err
		})
	}
	return making.Wait()
}

// added waits until a watch has brought so many objects.
func added(ctx context.Context, events watch.Interface, count int) error {
	for seen := 0; seen < count; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("saw %d of %d: %w", seen, count, ctx.Err())
		case event, ok := <-events.ResultChan():
			if !ok {
				return fmt.Errorf("the watch ended after %d of %d", seen, count)
			}
			if event.Type == watch.Added {
				seen++
			}
		}
	}
	return nil
}

func crowdConfiguration(name string) *akriv0.Configuration {
	// Without an address of their own: those of the API server would not be enough for all.
	service := &corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}
	container := corev1.Container{Name: "broker", Image: "ghcr.io/akri-mesh/sample-broker:dev", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"{{PLACEHOLDER}}": resource.MustParse("1")},
	}}
	return &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: space},
		Spec: akriv0.ConfigurationSpec{
			DiscoveryHandler:         akriv0.DiscoveryHandler{Name: "debugEcho"},
			BrokerSpec:               &akriv0.BrokerSpec{BrokerPodSpec: &corev1.PodSpec{Containers: []corev1.Container{container}}},
			InstanceServiceSpec:      service,
			ConfigurationServiceSpec: service,
		},
	}
}

func crowdInstance(owner *akriv0.Configuration, i int) *akriv0.Instance {
	digest := fmt.Sprintf("%06x", i)
	name := akriv0.InstanceName(owner.Name, digest)
	return &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: space,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, akriv0.GroupVersion.WithKind("Configuration"))},
		},
		Spec: akriv0.InstanceSpec{
			ConfigurationName: owner.Name, CDIName: akriv0.CDIName(owner.Name, digest), Capacity: 1, Nodes: []string{"node-a"},
			DeviceUsage: map[string]string{name + "-0": ""}, BrokerProperties: map[string]string{"DEBUG_ECHO_DESCRIPTION": digest},
		},
	}
}

// run says of all Pods that they run, as kubelets would, and waits until each has its Service.
func (c *crowd) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, burstWithin)
	defer cancel()
	services, err := c.kubernetes.CoreV1().Services(space).Watch(ctx, metav1.ListOptions{LabelSelector: "controller=akri.sh"})
	if err != nil {
		return fmt.Errorf("watch Services: %w", err)
	}
	defer services.Stop()
	pods, err := c.kubernetes.CoreV1().Pods(space).List(ctx, metav1.ListOptions{LabelSelector: mesh.ConfigurationLabel + "=" + burstName})
	if err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	var running errgroup.Group
	running.SetLimit(requestsAtOnce)
	running.Go(func() error { return added(ctx, services, len(pods.Items)+1) }) // one is the Configuration's
	for _, pod := range pods.Items {
		running.Go(func() error {
			patch := []byte(`{"status":{"phase":"Running","startTime":"2026-01-01T00:00:00Z"}}`)
			_, err := c.kubernetes.CoreV1().Pods(space).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			return err
		})
	}
	return running.Wait()
}

func (c *crowd) idleWrites(ctx context.Context) (map[string]float64, error) {
	// What was said last is worked on, and Events are counted, meanwhile.
	if err := pause(ctx, idleFor/2); err != nil {
		return nil, err
	}
	before, err := writesTo(ctx, c.kubernetes)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, idleFor); err != nil {
		return nil, err
	}
	after, err := writesTo(ctx, c.kubernetes)
	if err != nil {
		return nil, err
	}
	for what, count := range after {
		if after[what] = count - before[what]; after[what] == 0 || strings.HasSuffix(what, " leases") {
			delete(after, what)
		}
	}
	return after, nil
}

func (b *bench) printBurst(result *burst) {
	fmt.Fprintf(b.Out, "\n| broker-controller and %d Instances, without kubelets | |\n|---|---|\n", burstSize)
	fmt.Fprintf(b.Out, "| Instances made at once → all broker Pods seen | %.1f s |\n", result.pods.Seconds())
	fmt.Fprintf(b.Out, "| Pods said to run → all Services seen | %.1f s |\n", result.services.Seconds())
	fmt.Fprintf(b.Out, "| memory then | RSS %.1f MiB, of it private %.1f MiB |\n", mib(result.memory.resident), mib(result.memory.private))
	fmt.Fprintf(b.Out, "| API writes in an idle minute, leases aside | %s |\n", cmp.Or(strings.TrimPrefix(fmt.Sprint(result.writes), "map[]"), "none"))
}
