package charts_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestPodSecurity checks that the API server admits each Pod at the Pod Security level in the table
// of docs/security.md, and refuses it at the next level.
func TestPodSecurity(t *testing.T) {
	client, err := kubernetes.NewForConfig(server.Config())
	require.NoError(t, err)
	for _, level := range levels {
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: level, Labels: map[string]string{"pod-security.kubernetes.io/enforce": level},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	rendered, err := render(t, append(allHandlers(t), set("global.resources=dra", "console.enabled=true")...)...)
	require.NoError(t, err)
	agent, err := render(t, set("global.agent.enabled=true")...)
	require.NoError(t, err)
	admitted := map[string]string{}
	for _, workload := range append(workloads(t, rendered), workloads(t, agent)...) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: workload.Spec.Template.Spec}
		pod.Spec.PriorityClassName = "" // the test's API server has no classes
		for _, level := range levels {
			_, err := client.CoreV1().Pods(level).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil {
				admitted[component(workload)] = level
				break
			}
			require.ErrorContains(t, err, "violates PodSecurity")
		}
	}
	require.Equal(t, documentedLevels(t), admitted)
}

// levels of Pod Security, the strictest first.
var levels = []string{"restricted", "baseline", "privileged"}

func documentedLevels(t *testing.T) map[string]string {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| ([a-z, -]+) \\| `(restricted|baseline|privileged)` \\|")
	documented := map[string]string{}
	for _, match := range row.FindAllStringSubmatch(read(t, "docs/security.md"), -1) {
		for service := range strings.SplitSeq(match[1], ", ") {
			documented[service] = match[2]
			if service == "all handlers" {
				delete(documented, service)
				for _, handler := range sources(t).Handlers {
					documented[handler.Service] = match[2]
				}
			}
		}
	}
	return documented
}

// TestMounts checks the directories of the node that the Pods mount: those in which a service
// creates sockets are writable, the others are read-only.
func TestMounts(t *testing.T) {
	documented := regexp.MustCompile(`(?m)^\| ([a-z-]+) \|([^|]*)\|([^|]*)\|[^|]*\|$`)
	_, table, found := strings.Cut(read(t, "docs/security.md"), "| Service | Writable directories |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	expected := map[string][]string{}
	for _, match := range documented.FindAllStringSubmatch(table, -1) {
		expected[match[1]] = append(paths(match[2], ""), paths(match[3], " (read-only)")...)
	}
	for _, handler := range sources(t).Handlers {
		expected[handler.Service] = []string{"/var/lib/akri"}
		for _, mount := range handler.Mounts {
			if mount.HostPath != "" {
				expected[handler.Service] = append(expected[handler.Service], mount.HostPath+map[bool]string{true: " (read-only)"}[mount.ReadOnly])
			}
		}
	}
	rendered, err := render(t, append(allHandlers(t), set("global.resources=dra", "console.enabled=true")...)...)
	require.NoError(t, err)
	agent, err := render(t, set("global.agent.enabled=true")...)
	require.NoError(t, err)
	mounted := map[string][]string{}
	for _, workload := range append(workloads(t, rendered), workloads(t, agent)...) {
		for i, container := range workload.Spec.Template.Spec.Containers {
			name := container.Name
			if i == 0 {
				name = component(workload)
			}
			if found := hostMounts(workload.Spec.Template.Spec.Volumes, container); len(found) > 0 {
				mounted[name] = found
			}
		}
	}
	require.Equal(t, expected, mounted)
}

func paths(cell, suffix string) []string {
	var found []string
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		found = append(found, match[1]+suffix)
	}
	return found
}

func hostMounts(volumes []corev1.Volume, container corev1.Container) []string {
	var writable, readOnly []string
	for _, mount := range container.VolumeMounts {
		volume := volumes[slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })]
		switch {
		case volume.HostPath == nil:
		case mount.ReadOnly:
			readOnly = append(readOnly, volume.HostPath.Path+" (read-only)")
		default:
			writable = append(writable, volume.HostPath.Path)
		}
	}
	return append(writable, readOnly...)
}
