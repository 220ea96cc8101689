package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

const (
	idleDuration = time.Minute
	// scrapes is the number of scrapes in an hour, one each half minute. They make the processes
	// collect garbage, as they do in normal operation.
	scrapes = 120
)

// idle is the resource usage of an idle minute.
type idle struct {
	// writes are the API writes by resource, of Akri and of Kubernetes.
	writes   map[string]float64
	services []usage
}

// allHandlers has a Configuration without changes for each handler.
const allHandlers = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: idle-udev, namespace: default}
spec: {discoveryHandler: {name: udev, discoveryDetails: 'udevRules: ["KERNEL==\"null\""]'}}
---
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: idle-opcua, namespace: default}
spec: {discoveryHandler: {name: opcua, discoveryDetails: 'opcuaDiscoveryMethod: {standard: {}}'}}
---
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: idle-onvif, namespace: default}
spec: {discoveryHandler: {name: onvif, discoveryDetails: ''}}
`

func (b *bench) idle(ctx context.Context) (*idle, error) {
	if err := b.mesh.Apply(ctx, "deploy", "samples", "debug-echo.yaml"); err != nil {
		return nil, err
	}
	if err := b.mesh.ApplyText(ctx, allHandlers); err != nil {
		return nil, err
	}
	b.progress("scraping all services %d times, waiting until the cluster is idle, then measuring for %s", scrapes, idleDuration)
	found, err := b.idleMinute(ctx)
	if err != nil {
		return nil, err
	}
	return found, b.mesh.DeleteText(ctx, allHandlers)
}

// idleMinute returns the usage of one minute, after another minute without changes.
func (b *bench) idleMinute(ctx context.Context) (*idle, error) {
	if err := b.scrape(ctx); err != nil {
		return nil, err
	}
	if err := cluster.Pause(ctx, idleDuration); err != nil {
		return nil, err
	}

	before, err := b.totals(ctx)
	if err != nil {
		return nil, err
	}
	if err := cluster.Pause(ctx, idleDuration); err != nil {
		return nil, err
	}
	after, err := b.totals(ctx)
	if err != nil {
		return nil, err
	}

	for resource, count := range before.writes {
		after.writes[resource] -= count
	}
	for i := range after.services {
		after.services[i].cpu -= before.services[i].cpu
	}
	return after, nil
}

// scrape reads the metrics of all services, as Prometheus does.
func (b *bench) scrape(ctx context.Context) error {
	pods, err := b.pods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		for range scrapes {
			if _, err := b.mesh.Metrics(ctx, &pod); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) pods(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := b.mesh.Kubernetes.CoreV1().Pods(mesh.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=akri"})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return pods.Items, nil
}

// totals returns the usage since the start.
func (b *bench) totals(ctx context.Context) (*idle, error) {
	writes, err := writesTo(ctx, b.mesh.Kubernetes)
	if err != nil {
		return nil, err
	}
	services, err := b.services(ctx)
	return &idle{writes, services}, err
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
			resource := strings.TrimSuffix(labels["resource"]+"/"+labels["subresource"], "/")
			writes[labels["verb"]+" "+resource] += metric.GetCounter().GetValue()
		}
	}
	return writes, nil
}

// writesSince returns the writes between two calls of writesTo, without those of Leases.
func writesSince(before, after map[string]float64) map[string]float64 {
	writes := map[string]float64{}
	for request, count := range after {
		if count > before[request] && !strings.HasSuffix(request, " leases") {
			writes[request] = count - before[request]
		}
	}
	return writes
}

// usage is the memory of one process in bytes and its CPU time.
type usage struct {
	service                    string
	resident, private, working int
	cpu                        time.Duration
}

// services returns the usage of the processes of one Pod of each service.
func (b *bench) services(ctx context.Context) ([]usage, error) {
	pods, err := b.pods(ctx)
	if err != nil {
		return nil, err
	}

	var all []usage
	for _, pod := range pods {
		service := pod.Labels["app.kubernetes.io/component"]
		if slices.ContainsFunc(all, func(u usage) bool { return u.service == service }) {
			continue
		}

		node, err := b.mesh.Cluster.Node(pod.Spec.NodeName)
		if err != nil {
			return nil, err
		}
		for _, container := range pod.Spec.Containers {
			used, err := containerUsage(ctx, node, &pod, container.Name)
			if err != nil {
				return nil, err
			}
			all = append(all, used)
		}
	}

	slices.SortFunc(all, func(a, b usage) int { return strings.Compare(a.service, b.service) })
	return all, nil
}

func containerUsage(ctx context.Context, node cluster.Node, pod *corev1.Pod, container string) (usage, error) {
	pid, err := node.ContainerPID(ctx, pod.Namespace, pod.Name, container)
	if err != nil {
		return usage{}, err
	}
	used, usedErr := readUsage(mesh.ProcessOf(pod, container), pid)
	used.working, err = workingSet(pid)
	return used, errors.Join(usedErr, err)
}

func readUsage(service string, pid int) (usage, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}, fmt.Errorf("find process of %s: %w", service, err)
	}
	memory, memoryErr := process.ProcSMapsRollup()
	stat, statErr := process.Stat()
	if err := errors.Join(memoryErr, statErr); err != nil {
		return usage{}, fmt.Errorf("read memory and CPU time of %s: %w", service, err)
	}
	return usage{
		service: service, resident: int(memory.Rss), private: int(memory.Anonymous),
		cpu: time.Duration(stat.CPUTime() * float64(time.Second)),
	}, nil
}

// workingSet returns the working set of a process's container in bytes, as `kubectl top` shows it:
// the memory of its control group without inactive file pages.
func workingSet(pid int) (int, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("find process: %w", err)
	}
	groups, err := process.Cgroups()
	if err != nil {
		return 0, fmt.Errorf("read control groups: %w", err)
	}

	dir, usage, inactive := "", "memory.current", "inactive_file"
	for _, group := range groups {
		switch {
		case slices.Contains(group.Controllers, "memory"):
			dir, usage, inactive = "/sys/fs/cgroup/memory"+group.Path, "memory.usage_in_bytes", "total_inactive_file"
		case len(group.Controllers) == 0 && dir == "":
			dir = "/sys/fs/cgroup" + group.Path
		}
	}

	total, totalErr := os.ReadFile(filepath.Join(dir, usage))
	stat, statErr := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err := errors.Join(totalErr, statErr); err != nil {
		return 0, fmt.Errorf("read memory of control group: %w", err)
	}
	bytes, err := strconv.Atoi(strings.TrimSpace(string(total)))
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", usage, err)
	}

	for line := range strings.Lines(string(stat)) {
		if value, found := strings.CutPrefix(line, inactive+" "); found {
			unused, err := strconv.Atoi(strings.TrimSpace(value))
			return bytes - unused, err
		}
	}
	return 0, fmt.Errorf("memory.stat has no %s", inactive)
}
