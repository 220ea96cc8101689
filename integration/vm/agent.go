package vm

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// Run runs a shell script in the guest and returns its standard output without surrounding white
// space. An exit code other than 0 is an error with the standard error.
func (g *Guest) Run(ctx context.Context, script string) (string, error) {
	var process struct {
		PID int `json:"pid"`
	}
	arguments := map[string]any{"path": "/bin/sh", "arg": []string{"-c", script}, "capture-output": true}
	if err := g.agent.call(ctx, "guest-exec", arguments, &process); err != nil {
		return "", err
	}
	var status struct {
		Exited bool   `json:"exited"`
		Code   int    `json:"exitcode"`
		Signal int    `json:"signal"`
		Output []byte `json:"out-data"` // base64, as encoding/json decodes it
		Errors []byte `json:"err-data"`
	}
	err := poll(ctx, func() (bool, error) {
		err := g.agent.call(ctx, "guest-exec-status", map[string]any{"pid": process.PID}, &status)
		return status.Exited, err
	})
	if err != nil {
		return "", fmt.Errorf("run %q: %w", script, err)
	}
	output := strings.TrimSpace(string(status.Output))
	if status.Code != 0 || status.Signal != 0 {
		return output, fmt.Errorf("run %q: exit code %d, signal %d: %s%s", script, status.Code, status.Signal, output, status.Errors)
	}
	return output, nil
}

// WriteFile writes a small file in the guest: the agent reads about a megabyte in a second.
func (g *Guest) WriteFile(ctx context.Context, path string, content []byte) error {
	var handle int
	if err := g.agent.call(ctx, "guest-file-open", map[string]any{"path": path, "mode": "w"}, &handle); err != nil {
		return err
	}
	if err := g.agent.call(ctx, "guest-file-write", map[string]any{"handle": handle, "buf-b64": content}, nil); err != nil {
		return fmt.Errorf("write %s in the guest: %w", path, err)
	}
	return g.agent.call(ctx, "guest-file-close", map[string]any{"handle": handle}, nil)
}

// InstallBinary copies a program into the guest. It uses a disk, because the agent would need half
// a minute.
func (g *Guest) InstallBinary(ctx context.Context, from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read binary: %w", err)
	}
	disk, err := g.PlugDisk(ctx, Device{Driver: "virtio-blk-pci", Port: "rp1", Serial: "install"}, content)
	if err != nil {
		return err
	}
	const link = "/dev/disk/by-id/virtio-install"
	script := fmt.Sprintf(`i=0; until [ -e %[1]s ]; do i=$((i + 1)); [ $i -lt 600 ] || exit 1; sleep 0.1; done
head --bytes=%[2]d %[1]s > %[3]s && chmod 755 %[3]s`, link, len(content), to)
	if _, err := g.Run(ctx, script); err != nil {
		return err
	}
	return disk.Unplug(ctx)
}
