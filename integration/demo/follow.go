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

// expectation is what becomes of a Configuration.
type expectation struct {
	configuration      string
	instances, brokers int
	// content that each broker reads from its device; empty: the Configuration has no device to read from.
	content string
}

// follow reports each stage from a device to its broker, with the time since it began.
func (d *demo) follow(ctx context.Context, since time.Time, expected expectation) error {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	stages := []struct {
		what  string
		check func(context.Context) (string, error)
	}{
		{"Instances", d.instances(expected)},
		{"the kubelets to offer them (they tell the API server every 10 s)", d.offered(expected)},
		{"brokers to run", d.brokersRun(expected)},
		{"brokers to read their device", d.brokersRead(expected)},
	}
	for _, stage := range stages {
		var said string
		err := d.while("waiting for "+stage.what, func() error {
			return mesh.Await(ctx, stage.what, func(ctx context.Context) (err error) {
				said, err = stage.check(ctx)
				return err
			})
		})
		if err != nil {
			return err
		}
		if said != "" {
			d.since(since, said)
		}
	}
	return nil
}

func (d *demo) instances(expected expectation) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		found, err := d.mesh.InstancesOf(ctx, namespace, expected.configuration)
		if err != nil {
			return "", err
		}
		if len(found) != expected.instances {
			return "", fmt.Errorf("%d of %d Instances", len(found), expected.instances)
		}
		return "found: Instances " + strings.Join(names(found), ", "), nil
	}
}

func (d *demo) offered(expected expectation) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
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
					return "", fmt.Errorf("%s does not offer %s yet", node, instance.Name)
				}
			}
		}
		return "offered: akri.sh/<instance> is in the capacity of its nodes", nil
	}
}

func (d *demo) brokersRun(expected expectation) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
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
}

func (d *demo) brokersRead(expected expectation) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if expected.content == "" {
			return "", nil
		}
		pods, err := d.mesh.BrokersOf(ctx, namespace, expected.configuration)
		if err != nil {
			return "", err
		}
		for _, pod := range pods {
			read, err := d.mesh.AskBroker(ctx, &pod)
			if err != nil {
				return "", err
			}
			if !strings.Contains(string(read), expected.content) || !json.Valid(read) {
				return "", fmt.Errorf("%s read %s", pod.Name, read)
			}
		}
		return fmt.Sprintf("read: each broker reads %q from its device", expected.content), nil
	}
}

// gone reports how a device leaves.
func (d *demo) gone(ctx context.Context, since time.Time, configuration string) error {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	err := d.while("waiting for the Instances to leave", func() error {
		return mesh.Await(ctx, "the Instances to leave", func(ctx context.Context) error {
			return none(d.mesh.InstancesOf(ctx, namespace, configuration))
		})
	})
	if err != nil {
		return err
	}
	d.since(since, "left: no Instance")
	err = d.while("waiting for the brokers to end", func() error {
		return mesh.Await(ctx, "the brokers to end", func(ctx context.Context) error {
			return none(d.mesh.BrokersOf(ctx, namespace, configuration))
		})
	})
	if err != nil {
		return err
	}
	d.since(since, "left: no broker")
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
