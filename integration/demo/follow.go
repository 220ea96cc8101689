package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

const namespace = metav1.NamespaceDefault

// expectation is the expected result of a Configuration.
type expectation struct {
	configuration      string
	instances, brokers int
	// content that each broker reads from its device, empty without a readable device.
	content string
}

// follow waits for each stage from a device to its broker and prints the time since the start.
func (d *demo) follow(ctx context.Context, since time.Time, expected expectation) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	stages := []struct {
		name  string
		check func(context.Context, expectation) (string, error)
	}{
		{"Instances", d.instances},
		{"node capacity (kubelets update it every 10 s)", d.offered},
		{"ready brokers", d.brokersRun},
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

func (d *demo) instances(ctx context.Context, expected expectation) (string, error) {
	found, err := d.mesh.InstancesOf(ctx, namespace, expected.configuration)
	if err != nil {
		return "", err
	}
	if len(found) != expected.instances {
		return "", fmt.Errorf("%d of %d Instances", len(found), expected.instances)
	}
	return "discovered: Instances " + strings.Join(names(found), ", "), nil
}

func (d *demo) offered(ctx context.Context, expected expectation) (string, error) {
	found, err := d.mesh.InstancesOf(ctx, namespace, expected.configuration)
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
	pods, err := d.mesh.BrokersOf(ctx, namespace, expected.configuration)
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
	pods, err := d.mesh.BrokersOf(ctx, namespace, expected.configuration)
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

// awaitRemoval waits until the Instances and brokers of a Configuration are removed, and prints
// when.
func (d *demo) awaitRemoval(ctx context.Context, since time.Time, configuration string) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := d.while("waiting for the removal of the Instances", func() error {
		return mesh.Await(ctx, "removal of the Instances", func(ctx context.Context) error {
			return none(d.mesh.InstancesOf(ctx, namespace, configuration))
		})
	})
	if err != nil {
		return err
	}
	d.since(since, "removed: Instances")
	err = d.while("waiting for the removal of the brokers", func() error {
		return mesh.Await(ctx, "removal of the brokers", func(ctx context.Context) error {
			return none(d.mesh.BrokersOf(ctx, namespace, configuration))
		})
	})
	if err != nil {
		return err
	}
	d.since(since, "removed: brokers")
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
