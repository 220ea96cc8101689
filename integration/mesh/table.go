package mesh

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PrintTable prints all Instances with their Configuration, nodes, slots and brokers.
func (m *Mesh) PrintTable(ctx context.Context, out io.Writer) error {
	instances, err := m.Instances.In(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Instances: %w", err)
	}
	pods, err := m.Kubernetes.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: InstanceLabel})
	if err != nil {
		return fmt.Errorf("list brokers: %w", err)
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CONFIGURATION\tINSTANCE\tSHARED\tNODES\tSLOTS\tBROKERS")
	for _, instance := range instances.Items {
		fmt.Fprintf(table, "%s\t%s\t%t\t%s\t%s\t%s\n", instance.Spec.ConfigurationName, instance.Name, instance.Spec.Shared,
			strings.Join(instance.Spec.Nodes, ","), slots(instance.Spec.DeviceUsage), brokers(pods.Items, instance.Namespace, instance.Name))
	}
	return table.Flush()
}

// slots returns the holder of each slot, `-` for a free one.
func slots(usage map[string]string) string {
	keys := slices.SortedFunc(maps.Keys(usage), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	holders := make([]string, 0, len(keys))
	for _, key := range keys {
		holders = append(holders, cmp.Or(usage[key], "-"))
	}
	return strings.Join(holders, " ")
}

func brokers(pods []corev1.Pod, namespace, instance string) string {
	var names []string
	for _, pod := range pods {
		if pod.Namespace == namespace && pod.Labels[InstanceLabel] == instance {
			names = append(names, fmt.Sprintf("%s (%s)", pod.Name, pod.Status.Phase))
		}
	}
	return cmp.Or(strings.Join(names, ", "), "-")
}
