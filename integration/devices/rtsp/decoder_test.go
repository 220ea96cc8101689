package rtsp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

const (
	// decoderLinger is the time after the last request after which the decoder ends, as the README
	// of the broker states it.
	decoderLinger = 5 * time.Second
	// maxLate is the time by which a loaded machine delays that.
	maxLate = 15 * time.Second
)

// TestDecoder checks that the process that decodes runs only for images, once for all clients, and
// that it has neither the credentials of the broker nor a connection.
func TestDecoder(t *testing.T) {
	t.Parallel()
	camera := startCamera(t, "--username", "viewer", "--password", "secret")
	b := startBroker(t, "RTSP_URL="+camera.URL("127.0.0.1"), "CAMERA_USERNAME=viewer", "CAMERA_PASSWORD=secret")
	var response *http.Response
	awaitTrue(t, "a stream", func() (opened bool) {
		var err error
		response, err = http.Get("http://" + b.address + "/stream")
		return err == nil
	})
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	_, err := io.CopyN(io.Discard, response.Body, 128<<10)
	require.NoError(t, err)
	require.Empty(t, b.decoders(t), "a stream is passed through")

	decoder := b.decoderOfClients(t)
	last := time.Now()
	require.Contains(t, environment(t, b.pid), "CAMERA_PASSWORD=secret")
	require.Empty(t, environment(t, decoder))
	requireSandbox(t, decoder)

	go func() { _, _ = io.Copy(io.Discard, response.Body) }() // until the end of the test
	awaitTrue(t, "the decoder ends", func() bool { return len(b.decoders(t)) == 0 })
	idle := time.Since(last)
	require.Greater(t, idle, decoderLinger/2, "the next client has its image at once")
	require.Less(t, idle, decoderLinger+maxLate)

	again := b.decoderOfClients(t)
	require.NotEqual(t, decoder, again)
	require.NoError(t, syscall.Kill(again, syscall.SIGKILL))
	awaitTrue(t, "the next decoder", func() bool {
		_, err := b.frame(t.Context(), t) // before the next frame of the camera: the image that the killed one has encoded
		running := b.decoders(t)
		return err == nil && len(running) == 1 && running[0] != again
	})
	require.NotEqual(t, again, b.decoderOfClients(t))
}

// decoderOfClients returns the process that decodes while several clients request images.
func (b *broker) decoderOfClients(t *testing.T) int {
	t.Helper()
	clients, ctx := errgroup.WithContext(t.Context())
	for range 5 {
		clients.Go(func() error {
			for range 5 {
				if _, err := b.frame(ctx, t); err != nil {
					return err
				}
			}
			return nil
		})
	}
	ended, end := context.WithCancelCause(t.Context())
	go func() { end(clients.Wait()) }()

	seen := map[int]bool{}
	for ended.Err() == nil {
		running := b.decoders(t)
		require.LessOrEqual(t, len(running), 1)
		for _, pid := range running {
			seen[pid] = true
		}
	}
	require.ErrorIs(t, context.Cause(ended), context.Canceled, "a client has no image")
	require.Len(t, seen, 1, "all clients share a decoder")
	for pid := range seen {
		return pid
	}
	return 0
}

// decoders returns the processes that decode. The Go runtime also starts one for a moment, to see
// what the kernel supports.
func (b *broker) decoders(t *testing.T) (decoders []int) {
	t.Helper()
	for _, pid := range b.processes(t)[1:] {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // the process may have ended
		if strings.HasSuffix(string(line), "/camera-broker\x00decode\x00") {
			decoders = append(decoders, pid)
		}
	}
	return decoders
}

// environment returns the environment of a process (proc(5)).
func environment(t *testing.T, pid int) string {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	require.NoError(t, err)
	return string(content)
}

// requireSandbox requires that a process has no socket, and that all of its threads have a filter
// of system calls. TestSandbox of the decoder tests the filter.
func requireSandbox(t *testing.T, pid int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		target, err := os.Readlink(file)
		require.NoError(t, err)
		// The Go runtime reads the CPU limit.
		require.Regexp(t, `^(pipe:|anon_inode:|/dev/null$|/sys/fs/cgroup/)`, target)
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	require.NoError(t, err)
	require.NotEmpty(t, threads)
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		require.NoError(t, err)
		require.Regexp(t, `(?m)^NoNewPrivs:\t1$`, string(status))
		require.Regexp(t, `(?m)^Seccomp:\t2$`, string(status))
	}
}
