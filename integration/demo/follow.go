package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

const namespace = metav1.NamespaceDefault

// expectation is the expected result of a Configuration.
type expectation struct {
	configuration string
	// device is the id of the only device to follow, empty for all. The machine may have others.
	device             string
	instances, brokers int
	// content that each broker reads from its device, empty without a readable device.
	content string
}

// stage is a stage from a device to its broker.
type stage struct {
	name string
	// check returns the result, or an error until the stage is reached.
	check func(context.Context, expectation) (string, error)
}

// follow waits for each stage from a device to its broker and prints the time since the start. It
// sets ready to the time until the brokers are ready.
func (d *demo) follow(ctx context.Context, since time.Time, ready *time.Duration, expected expectation) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()

	stages := []stage{
		{"Instances", d.instances},
		d.offer(),
		{"ready brokers", func(ctx context.Context, expected expectation) (result string, err error) {
			result, err = d.brokersRun(ctx, expected)
			*ready = time.Since(since)
			return result, err
		}},
		{"brokers that read their device", d.brokersRead},
	}

	for _, stage := range stages {
		var result string
		err := d.while("waiting for "+stage.name, func() error {
			return mesh.Await(ctx, stage.name, func(ctx context.Context) (err error) {
				result, err = stage.check(ctx, expected)
				return err
			})
		})
		if err != nil {
			return err
		}
		if result != "" {
			d.since(since, result)
		}
	}
	return nil
}

// instancesOf returns the Instances of the devices to follow.
func (d *demo) instancesOf(ctx context.Context, expected expectation) ([]akriv0.Instance, error) {
	found, err := d.mesh.InstancesOf(ctx, namespace, expected.configuration)
	return slices.DeleteFunc(found, func(instance akriv0.Instance) bool {
		return expected.device != "" && instance.Annotations[akriv0.DeviceIDAnnotation] != expected.device
	}), err
}

// brokersOf returns the brokers of the devices to follow.
func (d *demo) brokersOf(ctx context.Context, expected expectation) ([]corev1.Pod, error) {
	found, err := d.instancesOf(ctx, expected)
	if err != nil {
		return nil, err
	}
	pods, err := d.mesh.BrokersOf(ctx, namespace, expected.configuration)
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !belongs(pod, found) }), err
}

// orphans returns the brokers of removed Instances.
func (d *demo) orphans(ctx context.Context, configuration string) ([]corev1.Pod, error) {
	found, err := d.mesh.InstancesOf(ctx, namespace, configuration)
	if err != nil {
		return nil, err
	}
	pods, err := d.mesh.BrokersOf(ctx, namespace, configuration)
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return belongs(pod, found) }), err
}

func belongs(broker corev1.Pod, instances []akriv0.Instance) bool {
	return slices.Contains(names(instances), broker.Labels[mesh.InstanceLabel])
}

func (d *demo) instances(ctx context.Context, expected expectation) (string, error) {
	found, err := d.instancesOf(ctx, expected)
	if err != nil {
		return "", err
	}
	if len(found) != expected.instances {
		return "", fmt.Errorf("%d of %d Instances", len(found), expected.instances)
	}
	return "discovered: Instances " + strings.Join(names(found), ", "), nil
}

// offer is the stage in which the scheduler sees the devices.
func (d *demo) offer() stage {
	if d.form.resources == akriv0.ResourcesDRA {
		return stage{"ResourceSlices", d.published}
	}
	return stage{"node capacity (kubelets update it every 10 s)", d.offered}
}

func (d *demo) published(ctx context.Context, expected expectation) (string, error) {
	found, err := d.instancesOf(ctx, expected)
	if err != nil {
		return "", err
	}
	list, err := d.mesh.Kubernetes.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list ResourceSlices: %w", err)
	}

	for _, instance := range found {
		hasDevice := func(slice resourcev1.ResourceSlice) bool {
			return slices.ContainsFunc(slice.Spec.Devices, func(device resourcev1.Device) bool {
				namespace, name := akriv0.InstanceOfDevice(slice.Spec.Pool.Name, device.Name)
				return namespace == instance.Namespace && name == instance.Name
			})
		}
		if !slices.ContainsFunc(list.Items, hasDevice) {
			return "", fmt.Errorf("%s has no ResourceSlice yet", instance.Name)
		}
	}
	return "offered: the scheduler sees the devices in ResourceSlices", nil
}

func (d *demo) offered(ctx context.Context, expected expectation) (string, error) {
	found, err := d.instancesOf(ctx, expected)
	if err != nil {
		return "", err
	}
	for _, instance := range found {
		for _, node := range instance.Spec.Nodes {
			offered, err := d.mesh.Capacity(ctx, node, instance.Name)
			if err != nil {
				return "", err
			}
			if offered == 0 {
				return "", fmt.Errorf("the capacity of %s does not have %s yet", node, instance.Name)
			}
		}
	}
	return "offered: akri.sh/<instance> is in the capacity of the nodes", nil
}

func (d *demo) brokersRun(ctx context.Context, expected expectation) (string, error) {
	pods, err := d.brokersOf(ctx, expected)
	if err != nil {
		return "", err
	}
	running := slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !mesh.Ready(&pod) })
	if len(running) != expected.brokers {
		return "", fmt.Errorf("%d of %d brokers are ready", len(running), expected.brokers)
	}
	return fmt.Sprintf("used: %d brokers are ready", len(running)), nil
}

func (d *demo) brokersRead(ctx context.Context, expected expectation) (string, error) {
	if expected.content == "" {
		return "", nil
	}
	pods, err := d.brokersOf(ctx, expected)
	if err != nil {
		return "", err
	}
	for _, pod := range pods {
		response, err := d.mesh.QueryBroker(ctx, &pod)
		if err != nil {
			return "", err
		}
		if !strings.Contains(string(response), expected.content) || !json.Valid(response) {
			return "", fmt.Errorf("%s read %s", pod.Name, response)
		}
	}
	return fmt.Sprintf("read: each broker reads %q from its device", expected.content), nil
}

// awaitRemoval waits until the Instances that are followed and their brokers are removed, and
// prints when.
func (d *demo) awaitRemoval(ctx context.Context, since time.Time, expected expectation) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for _, removed := range []struct {
		name string
		left func(context.Context) error
	}{
		{"Instances", func(ctx context.Context) error { return none(d.instancesOf(ctx, expected)) }},
		{"brokers", func(ctx context.Context) error { return none(d.orphans(ctx, expected.configuration)) }},
	} {
		removal := "removal of the " + removed.name
		err := d.while("waiting for the "+removal, func() error { return mesh.Await(ctx, removal, removed.left) })
		if err != nil {
			return err
		}
		d.since(since, "removed: "+removed.name)
	}
	return nil
}

func none[T any](items []T, err error) error {
	if err == nil && len(items) > 0 {
		err = fmt.Errorf("%d are left", len(items))
	}
	return err
}

func names(instances []akriv0.Instance) []string {
	names := make([]string, 0, len(instances))
	for _, instance := range instances {
		names = append(names, instance.Name)
	}
	return names
}
