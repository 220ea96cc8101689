package instancewriter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
)

// bytesOn returns the properties of the Instances that list the node.
func (f *fixture) bytesOn(node string) (bytes int) {
	f.Helper()
	list, err := f.instances.In(namespace).List(context.Background(), metav1.ListOptions{})
	require.NoError(f, err)
	for _, instance := range list.Items {
		if slices.Contains(instance.Spec.Nodes, node) {
			for _, value := range instance.Spec.BrokerProperties {
				bytes += len(value)
			}
		}
	}
	return bytes
}

// A node reports new devices in incomplete reports, which remove none, over several streams and
// replicas, makes the properties of existing ones larger, and closes the stream before its devices
// are removed. Its Instances stay within its limits.
func TestIncompleteReportsAreLimited(t *testing.T) {
	const size, limit = 900 << 10, 8 << 20
	f := newFixture(t, 1, 2)
	hostile, honest := f.nodes[0], f.nodes[1]
	replicas := []*replica{start(t, grace), start(t, grace)}
	large := func(id string, bytes int) *discoveryv1.Device {
		device := f.device(hostile, id, false)
		device.Properties["LONG"] = strings.Repeat("x", bytes)
		return device
	}
	s, refused := openReports(t, replicas[0]), 0
	for round := range 16 {
		if round%2 == 0 {
			require.NoError(t, s.CloseSend())
			s = openReports(t, replicas[round/2%2])
		}
		report := f.newReport(hostile, large(fmt.Sprint(round), size))
		report.Complete = false
		refused += len(s.send(report))
		// As small as possible, then large.
		for _, bytes := range []int{1, size} {
			id := fmt.Sprintf("grown-%d", round)
			report = f.newReport(hostile, large(id, bytes))
			report.Complete = false
			refused += len(s.send(report))
		}
	}
	require.Positive(t, refused)
	require.LessOrEqual(t, f.bytesOn(hostile), limit+2*size, "another replica may not have seen the last writes")
	require.Empty(t, openReports(t, replicas[0]).send(f.newReport(honest, f.device(honest, "honest", false))))

	// Incomplete reports on devices that exist, as after a restart of the node, are accepted.
	restarted := openReports(t, replicas[1])
	known := f.newReport(hostile, large("0", size))
	known.Complete = false
	require.Empty(t, restarted.send(known))
	// A complete report removes what does not exist, and all devices can be new.
	var devices []*discoveryv1.Device
	for i := range 3 {
		devices = append(devices, large(fmt.Sprintf("new-%d", i), size))
	}
	f.eventually("new devices", func() bool { return len(restarted.send(f.newReport(hostile, devices...))) == 0 })
	require.Less(t, f.bytesOn(hostile), 4*size)
}

// A node changes its devices in each report: it removes them and reports others, or changes their
// properties. The writes for its devices are limited, and those of another node are made at once.
func TestChangesOfANodeAreLimited(t *testing.T) {
	const rate, burst, devices = 20, 2000, 250
	f := newFixture(t, 1, 2)
	hostile, honest := f.nodes[0], f.nodes[1]
	r := start(t, grace)
	var written atomic.Int64
	changes, err := f.instances.In(namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	t.Cleanup(changes.Stop)
	go func() {
		for change := range changes.ResultChan() {
			instance, ok := change.Object.(*akriv0.Instance)
			if ok && change.Type != watch.Deleted && slices.Contains(instance.Spec.Nodes, hostile) {
				written.Add(1)
			}
		}
	}()

	began := time.Now()
	changing, steady := openReports(t, r), openReports(t, r)
	for round, refused := 0, 0; refused < 4*devices; round++ {
		var reported []*discoveryv1.Device
		for i := range devices {
			device := f.device(hostile, fmt.Sprintf("%d-%d", round/2, i), i%2 == 0)
			device.Properties["ROUND"] = fmt.Sprint(round)
			reported = append(reported, device)
		}
		refused += len(changing.send(f.newReport(hostile, reported...)))
		require.Empty(t, steady.send(f.newReport(honest, f.device(honest, fmt.Sprint(round), false))))
	}

	require.GreaterOrEqual(t, written.Load(), int64(burst-devices), "the burst is accepted")
	// rate.Limiter counts a time twice if a goroutine that read the clock earlier comes later. On a
	// machine with load that adds a few writes.
	allowed := burst + rate*1.1*time.Since(began).Seconds() + rate
	require.LessOrEqual(t, written.Load(), int64(allowed))
}
