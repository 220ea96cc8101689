package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"akri.sh/integration/progress"
)

// bootTimeout is large, because emulation on a machine that does other work boots in minutes.
const bootTimeout = 5 * time.Minute

// ensureSnapshot boots the image and saves the state of the machine. A snapshot fits only the QEMU
// and the arguments with which it was saved.
func (i *Image) ensureSnapshot(ctx context.Context, show func(string)) error {
	version, err := exec.CommandContext(ctx, architectures[i.machine.Architecture].qemu, "--version").Output()
	if err != nil {
		return fmt.Errorf("get the version of QEMU: %w", err)
	}
	sum := sha256.Sum256([]byte(string(version) + strings.Join(i.arguments(), "\n")))
	i.snapshot = i.snapshotPrefix() + hex.EncodeToString(sum[:])[:16]
	if _, err := os.Stat(i.snapshot); err == nil {
		return nil
	}

	if err := i.removeSnapshots(); err != nil {
		return err
	}

	show("guest: boot")
	return progress.While(showInterval, func(elapsed time.Duration) {
		show(fmt.Sprintf("guest: boot, %s after the start", elapsed.Round(time.Second)))
	}, func() error { return i.saveSnapshot(ctx) })
}

// snapshotPrefix begins the paths of the snapshots of the machine.
func (i *Image) snapshotPrefix() string {
	return filepath.Join(i.dir, fmt.Sprintf("snapshot-%d-%d%s-", i.machine.Memory, i.machine.Processors, strings.ReplaceAll(i.machine.Init, "/", "_")))
}

// removeSnapshots removes those of other versions of QEMU, and incomplete ones.
func (i *Image) removeSnapshots() error {
	old, err := filepath.Glob(i.snapshotPrefix() + "*")
	if err != nil {
		return fmt.Errorf("find snapshots: %w", err)
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove a snapshot: %w", err)
		}
	}
	return nil
}

func (i *Image) saveSnapshot(ctx context.Context) error {
	guest, err := i.Boot(ctx)
	if err != nil {
		return err
	}
	defer guest.Close()

	partial := i.snapshot + ".partial"
	file, err := os.Create(partial)
	if err != nil {
		return fmt.Errorf("create snapshot: %w", err)
	}
	defer file.Close()
	if err := guest.save(ctx, file); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	if err := os.Rename(partial, i.snapshot); err != nil {
		return fmt.Errorf("move snapshot: %w", err)
	}
	return nil
}

// save writes the state of the machine, which stops, to the file.
func (g *Guest) save(ctx context.Context, file *os.File) error {
	if err := g.monitor.send(ctx, file, "getfd", map[string]any{"fdname": "snapshot"}, nil); err != nil {
		return err
	}
	limits := map[string]any{"max-bandwidth": int64(10) << 30}
	if err := g.monitor.call(ctx, "migrate-set-parameters", limits, nil); err != nil {
		return err
	}
	if err := g.monitor.call(ctx, "migrate", map[string]any{"uri": "fd:snapshot"}, nil); err != nil {
		return err
	}

	return poll(ctx, func() (bool, error) {
		var state struct {
			Status string `json:"status"`
			Reason string `json:"error-desc"`
		}
		if err := g.monitor.call(ctx, "query-migrate", nil, &state); err != nil {
			return false, err
		}
		if state.Status == "failed" {
			return false, fmt.Errorf("save the state of the machine: %s", state.Reason)
		}
		return state.Status == "completed", nil
	})
}
