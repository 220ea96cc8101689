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

// measureVariable is how many cameras to measure with; unset: none. The handler is then built as it is shipped.
const measureVariable = "AKRI_ONVIF_CAMERAS"

const (
	roundWithin = 10 * time.Second
	watchFor    = 30 * time.Second
	hellos      = 20
)

func TestManyCamerasTakeOneRoundAndFewProbes(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv(measureVariable))
	if err != nil {
		t.Skip(measureVariable + " says with how many cameras")
	}
	all := cameras(count + hellos)
	f := fleet(t, onvif.Conditions{Delay: 500 * time.Millisecond}, all[:count]...)
	process, client := process(t)
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + adminAddress + "/healthz")
		return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}, roundWithin, 10*time.Millisecond)
	watch(t, "without a Configuration", process.Pid)

	began := time.Now()
	stream := discover(t, client, "", nil)
	requireAll(t, all[:count], stream.next(t))
	round := time.Since(began)
	t.Logf("one full round of %d cameras took %s and %d probes", count, round.Round(time.Millisecond), f.Probes())
	require.Less(t, round, roundWithin)

	before := f.Probes()
	watch(t, fmt.Sprintf("with %d cameras", count), process.Pid)
	probes := f.Probes() - before
	t.Logf("%d probes in %s afterwards", probes, watchFor)
	require.LessOrEqual(t, probes, int(watchFor/(10*time.Second)))

	var took []time.Duration
	for i := range hellos {
		require.NoError(t, f.Plug(all[count+i]))
		said := time.Now()
		require.NoError(t, f.Hello(all[count+i]))
		require.Len(t, stream.next(t), count+i+1)
		took = append(took, time.Since(said))
	}
	slices.Sort(took)
	t.Logf("Hello → list of %d cameras: p50 %s, max %s", count, took[hellos/2], took[hellos-1])
}

// watch logs what a process uses.
func watch(t *testing.T, when string, pid int) {
	t.Helper()
	before := processorTime(t, pid)
	<-time.After(watchFor)
	used := processorTime(t, pid) - before
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	var memory []string
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") {
			memory = append(memory, strings.Join(strings.Fields(line), " "))
		}
	}
	t.Logf("%s: %s, %.2f ms of processor time a second", when, strings.Join(memory, ", "), float64(used.Microseconds())/1000/watchFor.Seconds())
}

// processorTime is exact to the nanosecond, unlike what /proc/<pid>/stat says.
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
