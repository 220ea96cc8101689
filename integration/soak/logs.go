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
	"strings"
	"time"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

const logInterval = 2 * time.Second

// expectedErrors are error messages that faults of the soak cause, with the reason.
var expectedErrors = []struct{ message, reason string }{}

// logReader reads the logs of Akri's containers on all nodes as they are written. The kubelet
// deletes those of containers that were replaced.
type logReader struct {
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
	for line := range strings.Lines(string(complete)) {
		if message := unexpected(line); message != "" {
			found(path, message)
		}
	}
	return nil
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
	var entry struct{ Level, Message, Error string }
	if json.Unmarshal([]byte(text), &entry) != nil || entry.Level == "debug" || entry.Level == "info" || entry.Level == "warn" || entry.Level == "" {
		return ""
	}
	for _, expected := range expectedErrors {
		if strings.Contains(text, expected.message) {
			return ""
		}
	}
	return text
}
