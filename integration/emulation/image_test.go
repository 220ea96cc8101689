// Package emulation_test runs the programs of images for other processors, which QEMU emulates one
// program at a time: system calls are those of this machine's kernel.
package emulation_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
)

// variable is the directory of the archives that `make images-arm` writes.
const variable = "AKRI_ARM_IMAGES"

// processor is one that QEMU emulates.
type processor struct {
	// name is a part of the names of archives.
	name     string
	platform v1.Platform
	emulator string
}

var processors = []processor{
	{"arm64", v1.Platform{OS: "linux", Architecture: "arm64"}, "qemu-aarch64-static"},
	{"armv7", v1.Platform{OS: "linux", Architecture: "arm", Variant: "v7"}, "qemu-arm-static"},
}

// eachProcessor runs the test for each processor, unless the archives are missing because
// `make test-arm` does not run it.
func eachProcessor(t *testing.T, test func(t *testing.T, images map[string]*image)) {
	t.Helper()
	dir := os.Getenv(variable)
	if dir == "" {
		t.Skip(variable + " is not set; make test-arm sets it")
	}
	for _, p := range processors {
		t.Run(p.name, func(t *testing.T) { test(t, p.images(t, dir)) })
	}
}

// image is the content of an image on this machine.
type image struct {
	emulator, root string
	// programs are the paths of its programs, the first of which is the entrypoint.
	programs []string
}

// images extracts the images in the directory, by name.
func (p processor) images(t *testing.T, dir string) map[string]*image {
	t.Helper()
	suffix := "-" + p.name + ".tar"
	archives, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	require.NoError(t, err)
	require.NotEmpty(t, archives, "archives in %s", dir)
	images := map[string]*image{}
	for _, archive := range archives {
		images[strings.TrimSuffix(filepath.Base(archive), suffix)] = p.extract(t, archive)
	}
	return images
}

func (p processor) extract(t *testing.T, archive string) *image {
	t.Helper()
	opened, err := tarball.ImageFromPath(archive, nil)
	require.NoError(t, err)
	config, err := opened.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, p.platform, v1.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant})

	extracted := &image{emulator: p.emulator, root: t.TempDir(), programs: config.Config.Entrypoint}
	files := mutate.Extract(opened)
	defer files.Close()
	require.NoError(t, extract(files, extracted.root))
	programs, err := filepath.Glob(filepath.Join(extracted.root, "bin", "*"))
	require.NoError(t, err)
	for _, program := range programs {
		if inside := strings.TrimPrefix(program, extracted.root); !slices.Contains(extracted.programs, inside) {
			extracted.programs = append(extracted.programs, inside)
		}
	}
	return extracted
}

// extract writes the regular files of the archive to the directory.
func extract(from io.Reader, dir string) error {
	archive := tar.NewReader(from)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := write(filepath.Join(dir, path.Clean("/"+header.Name)), header.FileInfo().Mode(), archive); err != nil {
			return err
		}
	}
}

func write(file string, mode os.FileMode, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}

// command runs a program of the image. It has only these environment variables, and the libraries
// of the image.
func (i *image) command(t *testing.T, environment []string, program string, arguments ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), i.emulator, append([]string{"-L", i.root, filepath.Join(i.root, program)}, arguments...)...)
	command.Env = environment
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}
