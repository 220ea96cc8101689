package rtsp_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// memoryLimit returns that of the broker in the sample onvif-video.yaml, in bytes.
func memoryLimit(t *testing.T) int {
	t.Helper()
	sample, err := os.ReadFile("../../../deploy/samples/onvif-video.yaml")
	require.NoError(t, err)
	match := regexp.MustCompile(`(?s) limits:.*? memory: (\d+)Mi\n`).FindSubmatch(sample)
	require.NotNil(t, match)
	limit, err := strconv.Atoi(string(match[1]))
	require.NoError(t, err)
	return limit << 20
}

// TestCost runs three cameras with five viewers each, and requests images, which are decoded. It
// logs the memory and the CPU time of each broker, and checks the memory limit of the sample.
func TestCost(t *testing.T) {
	const viewers = 5
	limit := memoryLimit(t)
	brokers := make([]*broker, 3)
	for i := range brokers {
		camera := startCamera(t, "--width", "1280", "--height", "720")
		brokers[i] = startBroker(t, "RTSP_URL="+camera.URL("127.0.0.1"))
		brokers[i].awaitHealth(t, "ok")
		for range viewers {
			response, err := http.Get("http://" + brokers[i].address + "/stream")
			require.NoError(t, err)
			t.Cleanup(func() { _ = response.Body.Close() })
			go func() { _, _ = io.Copy(io.Discard, response.Body) }()
		}
	}
	for _, b := range brokers {
		// awaitHealth requested images.
		require.Eventually(t, func() bool { return len(b.processes(t)) == 1 }, time.Minute, 10*time.Millisecond, "the decoder runs without requests")
		before, began := b.cpu(t), time.Now()
		<-time.After(watched(t))
		used := b.cpu(t) - before
		t.Logf("%d viewers of 1280 x 720 at 15 frames a second: %.1f MiB, %.1f %% of a CPU", viewers, float64(b.memory(t))/(1<<20), 100*used.Seconds()/time.Since(began).Seconds())
		require.Less(t, b.memory(t), limit)

		before, began = b.cpu(t), time.Now()
		each := time.NewTicker(time.Second / 15)
		defer each.Stop()
		for time.Since(began) < watched(t) {
			_, err := b.frame(t.Context(), t)
			require.NoError(t, err)
			<-each.C
		}
		used = b.cpu(t) - before
		t.Logf("and 15 images a second: %.1f MiB in the broker and the decoder, %.1f %% of a CPU", float64(b.memory(t))/(1<<20), 100*used.Seconds()/time.Since(began).Seconds())
		require.Less(t, b.memory(t), limit)
	}
}

// watched is the time for which cameras are watched: AKRI_CAMERAS.
func watched(t *testing.T) time.Duration {
	t.Helper()
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("AKRI_CAMERAS"), "3s"))
	require.NoError(t, err, "AKRI_CAMERAS")
	return duration
}

// processes returns the process and its children.
func (p *program) processes(t *testing.T) []int {
	t.Helper()
	all := []int{p.pid}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.pid))
	require.NoError(t, err)
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // threads can end
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			all = append(all, child)
		}
	}
	return all
}

// memory returns the resident memory of the processes in bytes. It counts shared files twice.
func (p *program) memory(t *testing.T) (sum int) {
	t.Helper()
	for _, pid := range p.processes(t) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		require.NoError(t, err)
		pages, err := strconv.Atoi(strings.Fields(string(text))[1])
		require.NoError(t, err)
		sum += pages * os.Getpagesize()
	}
	return sum
}

// cpu returns the CPU time of the processes and of children that have ended, such as the decoder
// (proc(5), utime, stime, cutime and cstime of /proc/PID/stat).
func (p *program) cpu(t *testing.T) (sum time.Duration) {
	t.Helper()
	const tick = 10 * time.Millisecond
	for _, pid := range p.processes(t) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(t, err)
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')'):]))
		for _, field := range fields[12:16] {
			ticks, err := strconv.Atoi(field)
			require.NoError(t, err)
			sum += time.Duration(ticks) * tick
		}
	}
	return sum
}
