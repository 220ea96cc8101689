package broker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"akri.sh/deploy/samples/broker"
)

func TestProperties(t *testing.T) {
	for name, c := range map[string]struct {
		environ []string
		want    map[string]string
	}{
		"no properties":   {[]string{"PATH=/bin", "HOSTNAME=a"}, map[string]string{}},
		"pair":            {[]string{"PATH=/bin", "URL=u", "URL_0A1B2C=u"}, map[string]string{"URL": "u", "URL_0A1B2C": "u"}},
		"two devices":     {[]string{"K=b", "K_0A1B2C=a", "K_FFFFFF=b"}, map[string]string{"K": "b", "K_0A1B2C": "a", "K_FFFFFF": "b"}},
		"suffix only":     {[]string{"BUILD_ABCDEF=x"}, map[string]string{}},
		"lower-case hash": {[]string{"K=a", "K_abcdef=b"}, map[string]string{}},
		"known prefix, no pair": {[]string{"UDEV_DEVNODE=/dev/null", "DEBUG_ECHO_DESCRIPTION=foo"},
			map[string]string{"UDEV_DEVNODE": "/dev/null", "DEBUG_ECHO_DESCRIPTION": "foo"}},
		"equals sign in the value": {[]string{"UDEV_X=a=b"}, map[string]string{"UDEV_X": "a=b"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := broker.Properties(c.environ); !maps.Equal(got, c.want) {
				t.Fatalf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestRead(t *testing.T) {
	directory := t.TempDir()
	long := filepath.Join(directory, "long")
	writeFile(t, long, strings.Repeat("x", 100))
	short := filepath.Join(directory, "short")
	writeFile(t, short, "ab\x00\xff\n")
	idle := filepath.Join(directory, "idle")
	keepOpen(t, idle)
	slow := filepath.Join(directory, "slow")
	_, err := keepOpen(t, slow).WriteString("21.5 C")
	if err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		path string
		want broker.Device
	}{
		"truncated":           {long, broker.Device{BytesRead: 64, Content: strings.Repeat("x", 64)}},
		"unprintable bytes":   {short, broker.Device{BytesRead: 5, Content: "ab..."}},
		"empty device":        {"/dev/null", broker.Device{}},
		"zeros":               {"/dev/zero", broker.Device{BytesRead: 64, Content: strings.Repeat(".", 64)}},
		"missing device":      {"/dev/missing", broker.Device{Error: "open /dev/missing: no such file or directory"}},
		"device without data": {idle, broker.Device{Error: "read " + idle + ": i/o timeout"}},
		"slow device":         {slow, broker.Device{BytesRead: 6, Content: "21.5 C"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Env, c.want.Path = "UDEV_DEVNODE", c.path
			if got := broker.Read("UDEV_DEVNODE", c.path); got != c.want {
				t.Fatalf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestServe(t *testing.T) {
	device := filepath.Join(t.TempDir(), "device")
	writeFile(t, device, "first")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	sample := broker.New(broker.Config{
		Pod: "pod-a", Node: "node-a",
		Environ: []string{"PATH=/bin", "UDEV_DEVNODE=" + device, "UDEV_DEVNODE_0A1B2C=" + device},
		Logger:  slog.New(slog.NewJSONHandler(&log, nil)),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- sample.Run(ctx, listener) }()
	url := "http://" + listener.Addr().String()

	var report broker.Report
	if err := json.Unmarshal(get(t, url+"/"), &report); err != nil {
		t.Fatal(err)
	}
	if report.Pod != "pod-a" || report.Node != "node-a" || len(report.Devices) != 2 || report.Devices[0].Content != "first" || len(report.Env) != 2 {
		t.Fatalf("unexpected report: %+v", report)
	}
	writeFile(t, device, "second")
	if body := get(t, url+"/"); !bytes.Contains(body, []byte("second")) {
		t.Fatalf("the second report has the old content: %s", body)
	}
	if body := get(t, url+"/healthz"); string(body) != "ok\n" {
		t.Fatalf("unhealthy: %s", body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"env":"UDEV_DEVNODE_0A1B2C"`, `"bytesRead":5`, `"content":"first"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s not in the log:\n%s", want, log.String())
		}
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// keepOpen creates a named pipe and keeps it open without writing to it.
func keepOpen(t *testing.T, path string) *os.File {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pipe.Close() })
	return pipe
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("get %s: %s: %v: %s", url, response.Status, err, body)
	}
	return body
}
