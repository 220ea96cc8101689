package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"

	"akri.sh/tools/akri-image/internal/assembly"
	"akri.sh/tools/akri-image/internal/definition"
)

// source has the flags of all commands.
type source struct {
	Definitions string   `default:"deploy/images" env:"AKRI_DEFINITIONS" help:"Directory of image definitions, below the directory of go.work."`
	Names       []string `arg:"" optional:"" name:"name" help:"Images (default: all)."`
}

func (s source) load() ([]definition.Definition, error) {
	return definition.Load(s.Definitions, s.Names...)
}

// buildFlags has the flags of the commands that build.
type buildFlags struct {
	source
	Registry string            `default:"ghcr.io/akri-mesh" env:"AKRI_REGISTRY" help:"Prefix of image names: registry and path."`
	Tag      string            `default:"dev" env:"AKRI_TAG" help:"Tag of the images."`
	Version  string            `default:"dev" env:"AKRI_VERSION" help:"Version of binaries and images."`
	Label    map[string]string `help:"Label to add to each image, such as org.opencontainers.image.revision=SHA."`
	Work     string            `default:"${cache}/build" env:"AKRI_WORK" help:"Directory of compiled binaries. Unchanged binaries are not linked again."`
}

func (s buildFlags) builder() (assembly.Builder, error) {
	root, err := repository(s.Definitions)
	if err != nil {
		return assembly.Builder{}, err
	}
	work, err := filepath.Abs(s.Work)
	if err != nil {
		return assembly.Builder{}, fmt.Errorf("find work directory: %w", err)
	}
	return assembly.Builder{Root: root, Work: work, Version: s.Version, Labels: s.Label}, nil
}

func (s buildFlags) reference(def definition.Definition) (name.Tag, error) {
	tag, err := name.NewTag(s.Registry + "/" + def.Name + ":" + s.Tag)
	if err != nil {
		return name.Tag{}, fmt.Errorf("name image: %w", err)
	}
	return tag, nil
}

// lock prevents two builds from writing the same binary. The kernel releases it when the process
// ends.
func (s buildFlags) lock() (unlock func(), err error) {
	if err := os.MkdirAll(s.Work, 0o755); err != nil {
		return nil, fmt.Errorf("create work directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(s.Work, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock work directory: %w", err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// repository returns the directory of go.work, at or above definitions.
func repository(definitions string) (string, error) {
	start, err := filepath.Abs(definitions)
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find repository: no go.work in or above %q", start)
		}
	}
}

// cacheDir is the project's cache: $AKRI_CACHE, or akri in the user's cache directory.
func cacheDir() string {
	if dir := os.Getenv("AKRI_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "akri")
}
