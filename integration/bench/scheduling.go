package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"

	"akri.sh/integration/cluster"
	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/mesh"
	"akri.sh/integration/process"
)

const (
	schedulingNodes = 50
	// scheduledInterval is the resolution of the time at which all Pods are scheduled.
	scheduledInterval = 100 * time.Millisecond
)

// schedulingCase is how Pods get devices of a Configuration with burstSize devices.
type schedulingCase struct {
	name string
	// claims selects ResourceClaims instead of device plugins, shared devices that all nodes see,
	// and classes a DeviceClass for each Instance.
	claims, shared, classes bool
	// resource is requested by each Pod, or empty.
	resource string
	// profile is a file for a CPU profile of the scheduler, or empty.
	profile string
}

// pods returns the number of Pods to schedule. Devices that all nodes see take longer.
func (c schedulingCase) pods() int {
	if c.shared {
		return 100
	}
	return 500
}

func schedulingCases() []schedulingCase {
	burst := akriv0.ResourceName(burstName)
	return []schedulingCase{
		{name: "without devices"},
		{name: "device plugins, devices of one node each", resource: burst},
		{name: "DRA, devices of one node each", claims: true, classes: true, resource: burst},
		{name: "the same without DeviceClasses of Instances", claims: true, resource: burst},
		{name: "DRA, devices that all nodes see", claims: true, shared: true, classes: true, resource: burst},
		{name: "the same without DeviceClasses of Instances", claims: true, shared: true, resource: burst},
	}
}

// scheduling measures the scheduler and dra-controller with an API server and without kubelets, and
// prints the results.
func (b *bench) scheduling(ctx context.Context) error {
	var published []time.Duration
	fmt.Fprintf(b.Out, "\n| %d nodes, %d devices | Pods | created → all scheduled | Pods/s | CPU time of the scheduler for each Pod |\n|---|---|---|---|---|\n", schedulingNodes, burstSize)
	for i, c := range schedulingCases() {
		b.progress("scheduling %d Pods: %s", c.pods(), c.name)
		if b.Profile != "" && c.claims {
			c.profile = filepath.Join(b.Profile, fmt.Sprintf("scheduling-%d.pprof", i))
		}
		result, err := c.measure(ctx)
		if err != nil {
			return fmt.Errorf("measure scheduling, %s: %w", c.name, err)
		}
		fmt.Fprintf(b.Out, "| %s | %d | %.1f s | %.1f | %.1f ms |\n", c.name, c.pods(), result.scheduled.Seconds(),
			float64(c.pods())/result.scheduled.Seconds(), float64(result.cpu.Milliseconds())/float64(c.pods()))
		if c.claims {
			published = append(published, result.published)
		}
	}
	b.printLatencies(latency{fmt.Sprintf("%d Instances created in parallel → all ResourceSlices seen", burstSize), published})
	return nil
}

// schedulingResult is when all ResourceSlices are published, for a case with claims, when all Pods
// are scheduled, and the CPU time of the scheduler meanwhile.
type schedulingResult struct{ published, scheduled, cpu time.Duration }

func (c schedulingCase) measure(ctx context.Context) (result schedulingResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, burstTimeout)
	defer cancel()
	api, err := kubetest.Start(ctx)
	if err != nil {
		return result, err
	}
	defer api.Stop()
	clients, err := mesh.NewClients(api.Config())
	if err != nil {
		return result, err
	}
	nodes, err := c.createNodes(ctx, clients)
	if err != nil {
		return result, err
	}
	if c.claims {
		if result.published, err = c.publish(ctx, api, clients, nodes); err != nil {
			return result, err
		}
	}
	if c.claims && !c.classes {
		if err := removeClasses(ctx, clients); err != nil {
			return result, err
		}
	}
	scheduler, address, err := startScheduler(ctx, api)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, scheduler.Stop()) }()
	if _, err := c.schedule(ctx, clients, 1); err != nil { // the scheduler has read all objects
		return result, err
	}

	before, err := readUsage("kube-scheduler", scheduler.PID())
	if err != nil {
		return result, err
	}
	var group errgroup.Group
	if c.profile != "" {
		group.Go(func() error { return saveProfile(ctx, address, c.profile) })
	}
	result.scheduled, err = c.schedule(ctx, clients, c.pods())
	after, usageErr := readUsage("kube-scheduler", scheduler.PID())
	result.cpu = after.cpu - before.cpu
	return result, errors.Join(err, usageErr, group.Wait())
}

// startScheduler starts a scheduler that serves its profiles at the address.
func startScheduler(ctx context.Context, api *kubetest.Server) (scheduler *process.Process, address string, err error) {
	binary, err := binaries.Path("kube-scheduler")
	if err != nil {
		return nil, "", err
	}
	if address, err = process.FreeAddress(ctx); err != nil {
		return nil, "", err
	}
	host, port, _ := net.SplitHostPort(address) // of FreeAddress
	// The default rate of 50 requests a second would be the limit.
	scheduler, err = process.StartBinary(api, binary, "--leader-elect=false", "--kube-api-qps=5000", "--kube-api-burst=5000", "--v=0",
		"--bind-address="+host, "--secure-port="+port, "--authorization-always-allow-paths=/debug/pprof/*")
	return scheduler, address, err
}

// saveProfile writes the CPU profile of the next three seconds.
func saveProfile(ctx context.Context, address, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/debug/pprof/profile?seconds=3", nil)
	if err != nil {
		return fmt.Errorf("request profile: %w", err)
	}
	// The scheduler makes its certificate itself.
	unverified := &tls.Config{InsecureSkipVerify: true}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: unverified}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("request profile: %w", err)
	}
	defer response.Body.Close()
	profile, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read profile: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("request profile: %s: %s", response.Status, profile)
	}
	return os.WriteFile(file, profile, 0o644)
}

func (c schedulingCase) createNodes(ctx context.Context, clients mesh.Clients) (names []string, err error) {
	available := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("250"),
	}
	if c.resource != "" && !c.claims {
		available[corev1.ResourceName(c.resource)] = *resource.NewQuantity(burstSize/schedulingNodes, resource.DecimalSI)
	}
	for i := range schedulingNodes {
		name := fmt.Sprintf("node-%03d", i)
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
			Status: corev1.NodeStatus{
				Capacity: available, Allocatable: available,
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}
		if _, err := clients.Kubernetes.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create Node: %w", err)
		}
		names = append(names, name)
	}
	return names, nil
}

// publish creates the Instances and returns when dra-controller has published all devices.
func (c schedulingCase) publish(ctx context.Context, api *kubetest.Server, clients mesh.Clients, nodes []string) (took time.Duration, err error) {
	classes := clients.Kubernetes.ResourceV1().DeviceClasses()
	if _, err := classes.Create(ctx, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: akriv0.Driver}}, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("create DeviceClass: %w", err)
	}
	controller, err := process.Start(ctx, api, "dra-controller", "--admin-address=", "--log-level=error")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, controller.Stop()) }()
	awaitClasses := func(count int) error {
		seen, err := classes.Watch(ctx, metav1.ListOptions{}) // its first events are the existing objects
		if err != nil {
			return fmt.Errorf("watch DeviceClasses: %w", err)
		}
		return awaitAdded(ctx, seen, count)
	}
	slicesSeen, err := clients.Kubernetes.ResourceV1().ResourceSlices().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("watch ResourceSlices: %w", err)
	}
	defer slicesSeen.Stop()
	owner, err := clients.Configurations.In(namespace).Create(ctx, benchConfiguration(burstName), metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("create Configuration: %w", err)
	}
	if err := awaitClasses(2); err != nil { // the controller leads
		return 0, err
	}
	start := time.Now()
	var group errgroup.Group
	group.SetLimit(parallelRequests)
	group.Go(func() error {
		err := awaitDevices(ctx, slicesSeen, burstSize)
		took = time.Since(start)
		return err
	})
	group.Go(func() error { return awaitClasses(burstSize + 2) })
	for i := range burstSize {
		instance := benchInstance(owner, i)
		instance.Spec.Nodes = nodes[i%len(nodes):][:1]
		if c.shared {
			instance.Spec.Shared, instance.Spec.Nodes = true, nodes
		}
		group.Go(func() error {
			_, err := clients.Instances.In(namespace).Create(ctx, instance, metav1.CreateOptions{})
			return err
		})
	}
	return took, group.Wait()
}

// removeClasses removes the DeviceClasses of Instances.
func removeClasses(ctx context.Context, clients mesh.Clients) error {
	classes := clients.Kubernetes.ResourceV1().DeviceClasses()
	list, err := classes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list DeviceClasses: %w", err)
	}
	kept := []string{akriv0.Driver, akriv0.DeviceClassName(burstName)}
	for _, class := range list.Items {
		if slices.Contains(kept, class.Name) {
			continue
		}
		if err := classes.Delete(ctx, class.Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete DeviceClass: %w", err)
		}
	}
	return nil
}

// schedule creates Pods and returns when all have a node.
func (c schedulingCase) schedule(ctx context.Context, clients mesh.Clients, count int) (time.Duration, error) {
	pods := clients.Kubernetes.CoreV1().Pods(namespace)
	start := time.Now()
	var group errgroup.Group
	group.SetLimit(parallelRequests)
	for i := range count {
		group.Go(func() error {
			_, err := pods.Create(ctx, c.pod(fmt.Sprintf("of-%d-%d", count, i)), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("create Pods: %w", err)
	}
	err := cluster.Wait(ctx, scheduledInterval, func() error {
		list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d Pods wait for the scheduler", len(list.Items))
		}
		return err
	})
	return time.Since(start), err
}

func (c schedulingCase) pod(name string) *corev1.Pod {
	container := corev1.Container{Name: "main", Image: "cluster.invalid/pause:1"}
	if c.resource != "" {
		container.Resources.Limits = corev1.ResourceList{corev1.ResourceName(c.resource): resource.MustParse("1")}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container},
			// No controller removes the taint of new Nodes.
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}
