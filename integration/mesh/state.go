package mesh

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// brokerPort is the HTTP port of the sample broker.
const brokerPort = "8083"

// ConfigurationLabel and InstanceLabel are labels of all brokers.
const (
	ConfigurationLabel = "akri.sh/configuration"
	InstanceLabel      = "akri.sh/instance"
)

// InstancesOf returns the Instances of a Configuration, sorted by name.
func (m *Mesh) InstancesOf(ctx context.Context, namespace, configuration string) ([]akriv0.Instance, error) {
	list, err := m.Instances.In(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Instances: %w", err)
	}
	return OfConfiguration(list.Items, configuration), nil
}

// OfConfiguration returns those of the Instances that are of the Configuration.
func OfConfiguration(instances []akriv0.Instance, configuration string) []akriv0.Instance {
	return slices.DeleteFunc(instances, func(i akriv0.Instance) bool { return i.Spec.ConfigurationName != configuration })
}

// BrokersOf returns the broker Pods of a Configuration, sorted by name.
func (m *Mesh) BrokersOf(ctx context.Context, namespace, configuration string) ([]corev1.Pod, error) {
	list, err := m.Kubernetes.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: ConfigurationLabel + "=" + configuration})
	if err != nil {
		return nil, fmt.Errorf("list brokers: %w", err)
	}
	return list.Items, nil
}

// NodeNames returns the names of the cluster's nodes.
func (m *Mesh) NodeNames(ctx context.Context) ([]string, error) {
	list, err := m.Kubernetes.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var names []string
	for _, node := range list.Items {
		names = append(names, node.Name)
	}
	return names, nil
}

// Capacity is the node's capacity of `akri.sh/<name>`.
func (m *Mesh) Capacity(ctx context.Context, node, name string) (int64, error) {
	object, err := m.Kubernetes.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("get Node: %w", err)
	}
	return quantity(object.Status.Capacity, name), nil
}

// Allocatable is the node's allocatable amount of `akri.sh/<name>`.
func Allocatable(node *corev1.Node, name string) int64 {
	return quantity(node.Status.Allocatable, name)
}

func quantity(list corev1.ResourceList, name string) int64 {
	value := list[corev1.ResourceName(akriv0.ResourceName(name))]
	return value.Value()
}

// QueryBroker returns the JSON response of a sample broker: its environment and the content of its
// devices. The request goes through the API server.
func (m *Mesh) QueryBroker(ctx context.Context, pod *corev1.Pod) ([]byte, error) {
	response, err := m.Kubernetes.CoreV1().Pods(pod.Namespace).ProxyGet("", pod.Name, brokerPort, "", nil).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("query broker %s: %w", pod.Name, err)
	}
	return response, nil
}

// ProcessOf returns the name of a process in a table: the service of the Pod, and the container if
// it is not named after the service.
func ProcessOf(pod *corev1.Pod, container string) string {
	service := pod.Labels["app.kubernetes.io/component"]
	if container == service {
		return service
	}
	return service + ", " + container
}

// MetricsPort returns the port of the metrics of a service's Pod.
func MetricsPort(pod *corev1.Pod) (string, error) {
	ports := pod.Spec.Containers[0].Ports
	at := slices.IndexFunc(ports, func(port corev1.ContainerPort) bool { return port.Name == "metrics" })
	if at < 0 {
		return "", fmt.Errorf("pod %s has no port named metrics", pod.Name)
	}
	return fmt.Sprint(ports[at].ContainerPort), nil
}

// Metrics returns the metrics of a service's Pod. The request goes through the API server.
func (m *Mesh) Metrics(ctx context.Context, pod *corev1.Pod) ([]byte, error) {
	port, err := MetricsPort(pod)
	if err != nil {
		return nil, err
	}
	text, err := m.Kubernetes.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, port, "/metrics", nil).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("get metrics of pod %s: %w", pod.Name, err)
	}
	return text, nil
}

// Ready reports whether a Pod runs and is ready.
func Ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// WriteState writes the objects and Events of the cluster, and the last lines of all logs, for the
// person who looks for the cause of a failure. What cannot be read is an error in the text.
func (m *Mesh) WriteState(ctx context.Context, w io.Writer, lines int) {
	for _, arguments := range [][]string{
		{"get", "akric,akrii,pods,services", "--all-namespaces"},
		{"get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp"}, // kubectl sorts only one kind
		{"get", "akric,akrii", "--all-namespaces", "-o", "yaml"},
		{"get", "resourceclaims,resourceslices", "--all-namespaces", "-o", "yaml"}, // unknown to earlier versions of Kubernetes
		{"describe", "nodes"},
		{
			"logs", "--namespace", Namespace, "--selector", "app.kubernetes.io/part-of=akri", "--prefix", "--all-containers",
			"--tail=" + strconv.Itoa(lines), "--max-log-requests=100",
		},
	} {
		output, err := m.Kubectl(ctx, "", arguments...)
		fmt.Fprintf(w, "\nkubectl %v (%v)\n%s\n", arguments, err, output)
	}

	if err := m.Cluster.WriteLogs(w, lines); err != nil {
		fmt.Fprintln(w, err)
	}
}
