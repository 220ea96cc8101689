package vm

import (
	"bufio"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/progress"
)

const (
	showInterval = 15 * time.Second
	// unusedImages is the time after which an image that no test has used is removed.
	unusedImages = 14 * 24 * time.Hour
)

//go:embed recipe
var recipe embed.FS

// packages are the Debian packages of the commands that building guests needs.
var packages = map[string]string{
	"mmdebstrap": "mmdebstrap",
	"mkfs.erofs": "erofs-utils",
	"cpio":       "cpio",
}

// Image is a guest that is ready to start: a kernel, a root file system and the state of the
// machine after its boot.
type Image struct {
	machine  Machine
	dir      string
	snapshot string
	// command starts QEMU.
	command Command
}

// Ensure builds the image and boots the machine once for its snapshot, unless the cache has both.
// It needs root. Concurrent calls wait for each other. It calls show for each step, and repeatedly
// while a step takes long.
func Ensure(ctx context.Context, machine Machine, show func(step string)) (*Image, error) {
	if err := checkCommands(machine.Architecture); err != nil {
		return nil, err
	}
	cache, err := binaries.CacheDir()
	if err != nil {
		return nil, err
	}
	parent := filepath.Join(cache, "vm")
	unlock, err := binaries.Lock(parent)
	if err != nil {
		return nil, err
	}
	defer unlock()

	key, err := recipeKey()
	if err != nil {
		return nil, err
	}
	image := &Image{machine: machine, dir: filepath.Join(parent, key+"-"+machine.Architecture), command: startCommand}
	if err := image.ensureFiles(ctx, show); err != nil {
		return nil, err
	}
	if err := image.ensureSnapshot(ctx, show); err != nil {
		return nil, err
	}
	return image, removeUnused(parent, image.dir)
}

func checkCommands(architecture string) error {
	var missing []string
	for _, commands := range []map[string]string{packages, architectures[architecture].packages} {
		for command, pkg := range commands {
			if _, err := exec.LookPath(command); err != nil {
				missing = append(missing, pkg)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("packages are missing: apt-get install %s", strings.Join(missing, " "))
	}
	if os.Geteuid() != 0 {
		return errors.New("building a guest needs root for mounts; run it with sudo")
	}
	return nil
}

// recipeKey is a digest of all files from which the image is built.
func recipeKey() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(recipe, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := recipe.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(content), content)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:16], err
}

// ensureFiles builds into a temporary directory and renames it, so that an image is always
// complete.
func (i *Image) ensureFiles(ctx context.Context, show func(string)) error {
	now := time.Now()
	if os.Chtimes(i.dir, now, now) == nil {
		return nil
	}
	partial, err := partialDir(filepath.Dir(i.dir))
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(partial) }()
	if err := os.CopyFS(partial, recipe); err != nil {
		return fmt.Errorf("write recipe: %w", err)
	}
	if err := build(ctx, i.machine.Architecture, partial, show); err != nil {
		return err
	}
	if err := os.Rename(partial, i.dir); err != nil {
		return fmt.Errorf("move image: %w", err)
	}
	return nil
}

// partialDir returns a new directory and removes those of builds that were killed.
func partialDir(parent string) (string, error) {
	const pattern = ".partial-*"
	old, err := filepath.Glob(filepath.Join(parent, pattern))
	if err != nil {
		return "", fmt.Errorf("find directories: %w", err)
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return "", fmt.Errorf("remove a directory: %w", err)
		}
	}
	dir, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", fmt.Errorf("create directory: %w", err)
	}
	return dir, nil
}

// build runs the recipe in the directory in namespaces of its own. When this process is killed, the
// kernel kills all processes of the PID namespace, and the mounts end with them. The user namespace
// has the users of this machine, and its own table of emulators for programs of other processors.
func build(ctx context.Context, architecture, dir string, show func(string)) error {
	command := exec.CommandContext(ctx, "sh", filepath.Join(dir, "recipe", "build.sh"), architecture, dir)
	users := []syscall.SysProcIDMap{{Size: 1 << 16}}
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWUSER, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
		UidMappings: users, GidMappings: users, GidMappingsEnableSetgroups: true,
	}
	reader, writer := io.Pipe()
	command.Stdout, command.Stderr = writer, writer
	var step atomic.Value
	step.Store("start")
	output := make(chan []string, 1)
	go func() {
		output <- readSteps(reader, func(text string) { step.Store(text); show("guest: " + text) })
	}()

	err := progress.While(showInterval, func(elapsed time.Duration) {
		show(fmt.Sprintf("guest: %s, %s after the start", step.Load(), elapsed.Round(time.Second)))
	}, func() error { return errors.Join(command.Run(), writer.Close()) })
	if last := <-output; err != nil {
		return fmt.Errorf("build the guest: %w\n%s", err, strings.Join(last, "\n"))
	}
	return nil
}

// readSteps calls show for each line of progress and returns the last of the other lines.
func readSteps(reader io.Reader, show func(string)) (last []string) {
	const keep = 20
	scanner := bufio.NewScanner(reader)
	for scanner.Scan() {
		if text, found := strings.CutPrefix(scanner.Text(), "step: "); found {
			show(text)
			continue
		}
		last = append(last, scanner.Text())
		last = last[max(0, len(last)-keep):]
	}
	_, _ = io.Copy(io.Discard, reader) // after a line that is too long
	return last
}

// removeUnused removes the images of other recipes that were not used for a long time.
func removeUnused(parent, used string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(parent, entry.Name())
		info, err := entry.Info()
		if err != nil || !entry.IsDir() || path == used || time.Since(info.ModTime()) < unusedImages {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove an image: %w", err)
		}
	}
	return nil
}
