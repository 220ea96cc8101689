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

// created returns the Pods of the world as they appear.
func (w *world) created() <-chan watch.Event {
	watching, err := w.Pods.In(w.namespace).Watch(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	w.Cleanup(watching.Stop)
	return watching.ResultChan()
}

// next is when the next broker Pod appeared.
func next(events <-chan watch.Event) time.Time {
	for event := range events {
		if _, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Added {
			break
		}
	}
	return time.Now()
}

// BenchmarkInstanceToBroker is the time from the request that makes an Instance until another
// client sees its Pod.
func BenchmarkInstanceToBroker(b *testing.B) {
	w := newWorld(b)
	w.start()
	c := w.configuration("echo", podsOnly)
	created := w.created()
	w.instance(c, "ffffff", 1, "node-a")
	next(created)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		w.instance(c, fmt.Sprintf("%06x", i), 1, "node-a")
		took = append(took, next(created).Sub(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkBurst starts a controller on many Instances and waits until all Pods are there.
func BenchmarkBurst(b *testing.B) {
	for b.Loop() {
		w := newWorld(b)
		c := w.configuration("echo", podsOnly)
		for i := range burst {
			w.instance(c, fmt.Sprintf("%06x", i), 1, "node-a")
		}
		created := w.created()
		start := time.Now()
		stop := w.start()
		for range burst {
			next(created)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s-to-all-pods")
		var memory runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&memory)
		b.ReportMetric(float64(memory.HeapAlloc)/(1<<20), "heap-MiB")
		require.NoError(b, stop())
	}
}
