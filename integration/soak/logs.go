package soak

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

const logInterval = 2 * time.Second

// expectedErrors are parts of error messages that faults of the soak cause, with the reason.
var expectedErrors = map[string]string{
	`"logger":"UnhandledError"`:                    "client-go, while the API server is down or has not loaded its roles yet",
	`"Error retrieving lease lock`:                 "client-go, likewise",
	`update lease","service"`:                      "client-go, likewise",
	`"Unable to write event`:                       "client-go, likewise, and when a leader has lost its Lease",
	`"Unexpected error when reading response body`: "client-go, likewise",
	`"Error initially creating lease lock`:         "client-go: two replicas started at once, and the other one created the Lease",
	`"slot of a virtual device in use is unknown`:  "device-plugin-host restarted while an Instance did not list the slot of a Pod: its device was away",
}

// logReader copies the logs of Akri's containers on all nodes as they are written. The kubelet
// deletes those of containers that were replaced.
type logReader struct {
	dir     string
	offsets map[string]int64
}

// read calls found for each new line that reports an error or a panic.
func (l *logReader) read(nodes []cluster.Node, found func(file, line string)) error {
	for _, node := range nodes {
		files, err := filepath.Glob(filepath.Join(node.Path("/var/log/pods"), mesh.Namespace+"_*", "*", "*.log"))
		if err != nil {
			return fmt.Errorf("find logs: %w", err)
		}
		for _, file := range files {
			if err := l.readFile(file, found); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *logReader) readFile(path string, found func(file, line string)) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the container was replaced
	}
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() < l.offsets[path] {
		l.offsets[path] = 0 // the kubelet has rotated the file
	}
	text, err := io.ReadAll(io.NewSectionReader(file, l.offsets[path], 1<<30))
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	complete := text[:bytes.LastIndexByte(text, '\n')+1]
	l.offsets[path] += int64(len(complete))
	if err := l.copy(path, complete); err != nil {
		return err
	}
	for line := range strings.Lines(string(complete)) {
		if message := unexpected(line); message != "" {
			found(path, message)
		}
	}
	return nil
}

// copy appends text to a file for all containers of a Pod with the name. It has the name of the Pod
// and of the container.
func (l *logReader) copy(path string, text []byte) error {
	pod, container := filepath.Base(filepath.Dir(filepath.Dir(path))), filepath.Base(filepath.Dir(path))
	name := strings.Split(pod, "_")[1] + "_" + container + ".log"
	file, err := os.OpenFile(filepath.Join(l.dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open copy of log: %w", err)
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// unexpected returns the message of a line that reports a panic, or an error that is not expected.
// Lines have the format of the container runtime: time, stream, a tag, and the text.
func unexpected(line string) string {
	fields := strings.SplitN(strings.TrimSpace(line), " ", 4)
	if len(fields) < 4 {
		return ""
	}
	text := fields[3]
	if strings.HasPrefix(text, "panic:") || strings.HasPrefix(text, "fatal error:") {
		return text
	}
	var entry struct{ Level string }
	if json.Unmarshal([]byte(text), &entry) != nil || !slices.Contains([]string{"error", "dpanic", "panic", "fatal"}, entry.Level) {
		return ""
	}
	for expected := range expectedErrors {
		if strings.Contains(text, expected) {
			return ""
		}
	}
	return text
}
