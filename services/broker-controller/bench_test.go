package brokercontroller_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const burst = 1000

// watchPods returns a watch of the Pods.
func (e *testEnv) watchPods() <-chan watch.Event {
	watching, err := e.Pods.In(e.namespace).Watch(e.Context(), metav1.ListOptions{})
	require.NoError(e, err)
	e.Cleanup(watching.Stop)
	return watching.ResultChan()
}

// waitForPod returns when the next Pod was added.
func waitForPod(events <-chan watch.Event) time.Time {
	for event := range events {
		if _, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Added {
			break
		}
	}
	return time.Now()
}

// BenchmarkInstanceToBroker measures the time from the creation of an Instance until another client
// sees its Pod.
func BenchmarkInstanceToBroker(b *testing.B) {
	e := newTestEnv(b)
	e.start()
	c := e.configuration("echo", podsOnly)
	created := e.watchPods()
	e.instance(c, "ffffff", 1, "node-a")
	waitForPod(created)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		e.instance(c, fmt.Sprintf("%06x", i), 1, "node-a")
		took = append(took, waitForPod(created).Sub(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkBurst measures the time from the start of a controller until the Pods of all Instances
// exist.
func BenchmarkBurst(b *testing.B) {
	for b.Loop() {
		e := newTestEnv(b)
		c := e.configuration("echo", podsOnly)
		for i := range burst {
			e.instance(c, fmt.Sprintf("%06x", i), 1, "node-a")
		}
		created := e.watchPods()
		start := time.Now()
		stop := e.start()
		for range burst {
			waitForPod(created)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s-to-all-pods")
		var memory runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&memory)
		b.ReportMetric(float64(memory.HeapAlloc)/(1<<20), "heap-MiB")
		require.NoError(b, stop())
	}
}
