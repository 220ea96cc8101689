// Package binaries builds the third-party binaries of a cluster from their Go modules, which the
// go.mod files in tools/ pin, and keeps them in a cache. It downloads only Go modules with verified
// checksums.
package binaries

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// CacheDir is the cache of the project's developer tools: $AKRI_CACHE, or akri in the user's cache
// directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("AKRI_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory (or set AKRI_CACHE): %w", err)
	}
	return filepath.Join(dir, "akri"), nil
}

// Root is the repository of the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for parent := ""; dir != parent; parent, dir = dir, filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "tools", "kubernetes", "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("find repository: no parent directory has tools/kubernetes/go.mod")
}

// Path returns the path of a binary that Ensure has built.
func Path(name string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find %s: %w; run akri-cluster binaries", name, err)
	}
	return path, nil
}

// Ensure builds the named binaries, or all, unless they are up to date, and returns their
// directory. It replaces each binary atomically, and concurrent calls wait for each other. The
// first build takes minutes. It calls show for each step, and repeatedly while it compiles, with
// what remains. show may be nil.
func Ensure(ctx context.Context, show func(step string), names ...string) (string, error) {
	if show == nil {
		show = func(string) {}
	}
	selected, err := programs(names)
	if err != nil {
		return "", err
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "bin")
	unlock, err := Lock(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	outdated, err := outdated(ctx, root, dir, selected)
	if err != nil {
		return "", err
	}
	builds := group(outdated)
	for i, b := range builds {
		if err := b.run(ctx, root, dir, func(state string) {
			show(fmt.Sprintf("%d of %d: compiling %s%s", i+1, len(builds), b.names(), state))
		}); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// Lock creates and locks a directory, such as one of the cache. The kernel releases the lock when
// the process ends.
func Lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create cache directory: %w", err)
	}
	file, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = file.Close() }, nil
}

type pending struct {
	Program
	stamp string
}

func outdated(ctx context.Context, root, dir string, selected []Program) ([]pending, error) {
	goVersion, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOARCH").Output()
	if err != nil {
		return nil, fmt.Errorf("get Go version: %w", err)
	}
	var list []pending
	for _, p := range selected {
		stamp, err := p.stamp(root, string(goVersion))
		if err != nil {
			return nil, err
		}
		builtStamp, _ := os.ReadFile(filepath.Join(dir, "."+p.Name+".stamp"))
		if _, err := os.Stat(filepath.Join(dir, p.Name)); err != nil || string(builtStamp) != stamp {
			list = append(list, pending{p, stamp})
		}
	}
	return list, nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
