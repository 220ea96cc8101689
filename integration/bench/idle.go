package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"akri.sh/integration/mesh"
)

const idleFor = time.Minute

// idleWrites counts the API server's writes by resource while nothing happens: Akri's agents and Kubernetes' own alike.
func (b *bench) idleWrites(ctx context.Context) (map[string]float64, error) {
	if err := b.mesh.Apply(ctx, "deploy", "samples", "debug-echo.yaml"); err != nil {
		return nil, err
	}
	b.say("waiting for the cluster to be idle, then counting writes for %s", idleFor)
	if err := pause(ctx, idleFor); err != nil {
		return nil, err
	}
	before, err := b.writes(ctx)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, idleFor); err != nil {
		return nil, err
	}
	after, err := b.writes(ctx)
	if err != nil {
		return nil, err
	}
	for resource, count := range before {
		after[resource] -= count
	}
	return after, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (b *bench) writes(ctx context.Context) (map[string]float64, error) {
	return writesTo(ctx, b.mesh.Kubernetes)
}

func writesTo(ctx context.Context, api kubernetes.Interface) (map[string]float64, error) {
	text, err := api.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("get API server metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read API server metrics: %w", err)
	}
	writes := map[string]float64{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		if slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, labels["verb"]) {
			what := strings.TrimSuffix(labels["resource"]+"/"+labels["subresource"], "/")
			writes[labels["verb"]+" "+what] += metric.GetCounter().GetValue()
		}
	}
	return writes, nil
}

// usage is the memory of one process in KiB.
type usage struct {
	service                string
	resident, private, set int
}

// memory reads what each service's process on the first node uses, or on any node where the first has none.
func (b *bench) memory(ctx context.Context) ([]usage, error) {
	pods, err := b.mesh.Kubernetes.CoreV1().Pods(mesh.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=akri"})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var all []usage
	for _, pod := range pods.Items {
		service := pod.Labels["app.kubernetes.io/component"]
		if slices.ContainsFunc(all, func(u usage) bool { return u.service == service }) {
			continue
		}
		node, err := b.mesh.Cluster.Node(pod.Spec.NodeName)
		if err != nil {
			return nil, err
		}
		pid, err := node.ContainerPID(ctx, pod.Namespace, pod.Name, pod.Spec.Containers[0].Name)
		if err != nil {
			return nil, err
		}
		used, err := readUsage(service, pid)
		if err != nil {
			return nil, err
		}
		all = append(all, used)
	}
	slices.SortFunc(all, func(a, b usage) int { return strings.Compare(a.service, b.service) })
	return all, nil
}

func readUsage(service string, pid int) (usage, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return usage{}, fmt.Errorf("read memory of %s: %w", service, err)
	}
	used := usage{service: service}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		value, err := strconv.Atoi(fields[1])
		if err != nil {
			continue // the line that names the address range
		}
		switch fields[0] {
		case "Rss:":
			used.resident = value
		case "Pss:":
			used.set = value
		case "Anonymous:":
			used.private = value
		}
	}
	return used, lines.Err()
}
