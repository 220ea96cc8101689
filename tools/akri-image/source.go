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

// source are the flags that every command shares: where definitions are.
type source struct {
	Definitions string   `default:"deploy/images" env:"AKRI_DEFINITIONS" help:"Folder of image definitions. The repository is the folder above it that holds go.work."`
	Names       []string `arg:"" optional:"" name:"name" help:"Images to take; all by default."`
}

func (s source) load() ([]definition.Definition, error) {
	return definition.Load(s.Definitions, s.Names...)
}

// settings are the flags of the commands that build.
type settings struct {
	source
	Registry string            `default:"ghcr.io/akri-mesh" env:"AKRI_REGISTRY" help:"Registry and folder that image names begin with."`
	Tag      string            `default:"dev" env:"AKRI_TAG" help:"Tag of the images."`
	Version  string            `default:"dev" env:"AKRI_VERSION" help:"Version that programs and images call themselves."`
	Label    map[string]string `help:"Label to add to each image, such as org.opencontainers.image.revision=SHA."`
	Work     string            `default:"${cache}/build" env:"AKRI_WORK" help:"Folder of compiled programs, kept so that unchanged ones are not linked again."`
}

func (s settings) builder() (assembly.Builder, error) {
	root, err := repository(s.Definitions)
	if err != nil {
		return assembly.Builder{}, err
	}
	work, err := filepath.Abs(s.Work)
	if err != nil {
		return assembly.Builder{}, fmt.Errorf("find work folder: %w", err)
	}
	return assembly.Builder{Root: root, Work: work, Version: s.Version, Labels: s.Label}, nil
}

func (s settings) reference(def definition.Definition) (name.Tag, error) {
	tag, err := name.NewTag(s.Registry + "/" + def.Name + ":" + s.Tag)
	if err != nil {
		return name.Tag{}, fmt.Errorf("name image: %w", err)
	}
	return tag, nil
}

// lock keeps two builds from writing the same program at once. The kernel lets
// go of it when the process ends.
func (s settings) lock() (unlock func(), err error) {
	if err := os.MkdirAll(s.Work, 0o755); err != nil {
		return nil, fmt.Errorf("create work folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(s.Work, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock work folder: %w", err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// repository is the folder at or above definitions that holds go.work.
func repository(definitions string) (string, error) {
	start, err := filepath.Abs(definitions)
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for folder := start; ; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.work")); err == nil {
			return folder, nil
		}
		if folder == filepath.Dir(folder) {
			return "", fmt.Errorf("find repository: no go.work in any folder above %q", start)
		}
	}
}

// cacheFolder is where a developer's machine keeps what can be made again.
func cacheFolder() string {
	if folder := os.Getenv("AKRI_CACHE"); folder != "" {
		return folder
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		folder = os.TempDir()
	}
	return filepath.Join(folder, "akri")
}
