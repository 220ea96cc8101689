package onvif_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/devices/onvif"
)

// measureVariable is the environment variable with the number of cameras to measure with. If it is
// set, the handler is built as in the image, and the samples are long enough for measurements.
const measureVariable = "AKRI_ONVIF_CAMERAS"

const (
	startTimeout  = 10 * time.Second
	probeInterval = 10 * time.Second // the default
	burstProbes   = 6
	hellos        = 20
)

func TestManyCameras(t *testing.T) {
	count, sampleTime := 50, time.Second
	if text := os.Getenv(measureVariable); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err, measureVariable)
		sampleTime = 30 * time.Second
	}
	all := cameras(count + hellos)
	f := fleet(t, onvif.Conditions{Delay: 500 * time.Millisecond}, all[:count]...)
	process, client := process(t)
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + adminAddress + "/healthz")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, startTimeout, 10*time.Millisecond)
	sample(t, "without a Configuration", process.Pid, sampleTime)

	start := time.Now()
	stream := discover(t, client, "", nil)
	requireAll(t, all[:count], stream.next(t))
	round := time.Since(start)
	before := f.Probes()
	t.Logf("the first list with %d cameras took %s and %d probes", count, round.Round(time.Millisecond), before)
	require.Equal(t, burstProbes, before, "the first list must be complete before the next probe")

	sample(t, fmt.Sprintf("with %d cameras", count), process.Pid, sampleTime)
	probes := f.Probes() - before
	t.Logf("%d probes in %s afterwards", probes, sampleTime)
	require.LessOrEqual(t, probes, 1+int(sampleTime/probeInterval))

	var took []time.Duration
	for i := range hellos {
		require.NoError(t, f.Plug(all[count+i]))
		sent := time.Now()
		require.NoError(t, f.Hello(all[count+i]))
		require.Len(t, stream.next(t), count+i+1)
		took = append(took, time.Since(sent))
	}
	slices.Sort(took)
	t.Logf("Hello → list of %d cameras: p50 %s, max %s", count, took[hellos/2], took[hellos-1])
}

// sample logs the memory and the processor time of a process over the given time.
func sample(t *testing.T, when string, pid int, duration time.Duration) {
	t.Helper()
	before := processorTime(t, pid)
	<-time.After(duration)
	used := processorTime(t, pid) - before
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	var memory []string
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") {
			memory = append(memory, strings.Join(strings.Fields(line), " "))
		}
	}
	t.Logf("%s: %s, %.2f ms of processor time a second", when, strings.Join(memory, ", "), float64(used.Microseconds())/1000/duration.Seconds())
}

// processorTime has a resolution of nanoseconds, unlike /proc/<pid>/stat.
func processorTime(t *testing.T, pid int) (sum time.Duration) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	require.NoError(t, err)
	for _, thread := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, thread.Name()))
		require.NoError(t, err)
		nanoseconds, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		require.NoError(t, err)
		sum += time.Duration(nanoseconds)
	}
	return sum
}
