package bench

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

func (b *bench) print(plugged *hotPlug, idle *idle) {
	b.printMachine(fmt.Sprintf("%s, %d nodes on one machine", kubernetesVersion(b.mesh.Kubernetes), len(b.mesh.Cluster.Nodes())))
	b.printLatencies(
		latency{"kernel uevent → handler-udev's device list received", plugged.sent},
		latency{"kernel uevent → Instance seen by an API watch", plugged.instance},
		latency{"Instance seen → resource in the kubelet's checkpoint (resolution 1 ms)", plugged.capacity},
		latency{"Instance seen → broker Pod seen", plugged.pod},
	)
	b.printUsage("Service, idle", idle.services...)
	fmt.Fprintf(b.Out, "\n| API writes in an idle minute, including those of Kubernetes | count |\n|---|---|\n")
	for _, resource := range slices.Sorted(maps.Keys(idle.writes)) {
		if idle.writes[resource] > 0 {
			fmt.Fprintf(b.Out, "| %s | %.0f |\n", resource, idle.writes[resource])
		}
	}
}

func (b *bench) printMachine(software string) {
	fmt.Fprintf(b.Out, "%s, %d CPUs, %s, %s.\n", kernel(), runtime.NumCPU(), runtime.Version(), software)
}

// latency is a row of a table of latencies.
type latency struct {
	name string
	took []time.Duration
}

func (b *bench) printLatencies(rows ...latency) {
	fmt.Fprintf(b.Out, "\n| Latency | n | p50 | p99 | max |\n|---|---|---|---|---|\n")
	for _, row := range rows {
		slices.Sort(row.took)
		fmt.Fprintf(b.Out, "| %s | %d | %s | %s | %s |\n", row.name, len(row.took),
			percentile(row.took, 50), percentile(row.took, 99), percentile(row.took, 100))
	}
}

// percentile returns the value that the given percentage of durations does not exceed.
func percentile(sorted []time.Duration, percent int) string {
	if len(sorted) == 0 {
		return "none"
	}
	index := (len(sorted)*percent+99)/100 - 1
	return fmt.Sprintf("%.1f ms", float64(sorted[max(0, index)].Microseconds())/1000)
}

func mib(bytes int) float64 { return float64(bytes) / (1 << 20) }

func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "Linux"
	}
	return "Linux " + strings.TrimSpace(string(text))
}

func kubernetesVersion(api kubernetes.Interface) string {
	version, err := api.Discovery().ServerVersion()
	if err != nil {
		return "Kubernetes " + err.Error()
	}
	return "Kubernetes " + version.GitVersion
}
