package assembly_test

import (
	"archive/tar"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"

	"akri.sh/tools/akri-image/internal/assembly"
	"akri.sh/tools/akri-image/internal/definition"
)

const (
	testRepository = "../../testdata/repository"
	thisRepository = "../../../.."
)

func TestDigestIsReproducible(t *testing.T) {
	for _, name := range []string{"hello", "udev"} {
		t.Run(name, func(t *testing.T) {
			want := digest(t, build(t, testRepository, name, definition.Native()))
			require.Equal(t, want, digest(t, build(t, testRepository, name, definition.Native())), "second build")

			otherDir := filepath.Join(t.TempDir(), "a", "longer", "path")
			require.NoError(t, os.CopyFS(otherDir, os.DirFS(testRepository)))
			t.Setenv("GOCACHE", t.TempDir())
			t.Setenv("GOFLAGS", "-ldflags=-X=main.leak=1")
			t.Setenv("CGO_CFLAGS", "-O0")
			require.Equal(t, want, digest(t, build(t, otherDir, name, definition.Native())), "other directory, cache and flags")
		})
	}
}

func TestImageMatchesDefinition(t *testing.T) {
	for _, platform := range definition.DefaultPlatforms() {
		img := build(t, testRepository, "hello", platform)
		root := extract(t, img)
		require.Equal(t, []string{
			"bin", "bin/hello", "etc", "etc/hello.conf", "tmp",
			"usr", "usr/share", "usr/share/doc", "usr/share/doc/note",
		}, files(t, root))
		note, err := os.ReadFile(filepath.Join(root, "usr/share/doc/note"))
		require.NoError(t, err)
		require.Equal(t, "this is a note\n", string(note))

		info, err := buildinfo.ReadFile(filepath.Join(root, "bin/hello"))
		require.NoError(t, err)
		require.Contains(t, info.String(), "GOARCH="+platform.Arch)
		config, err := img.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, platform.Arch, config.Architecture)
		require.Equal(t, definition.NonRoot, config.Config.User)
		require.Equal(t, []string{"/bin/hello"}, config.Config.Entrypoint)
		require.Equal(t, map[string]string{
			"org.opencontainers.image.title":       "hello",
			"org.opencontainers.image.description": "a static program",
			"org.opencontainers.image.version":     "v9",
			"extra":                                "label",
		}, config.Config.Labels)
	}
}

func TestBinaryRunsInImage(t *testing.T) {
	require.Equal(t, "hello\n", run(t, extract(t, build(t, testRepository, "hello", definition.Native())), "/bin/hello"))
	require.Equal(t, "udev works\n", run(t, extract(t, build(t, testRepository, "udev", definition.Native())), "/bin/udev"))
}

func TestCgoImageHasNeededLibraries(t *testing.T) {
	var names []string
	for _, file := range files(t, extract(t, build(t, testRepository, "udev", definition.Native()))) {
		if strings.Contains(file, ".so") {
			names = append(names, filepath.Base(file))
		}
	}
	require.Len(t, names, 3, "loader, C library, libudev: %v", names)
}

func TestShellRedirectsOutput(t *testing.T) {
	def := definition.Definition{
		Name: "shell", Description: "d", Package: "deploy/samples/broker/cmd/sample-broker", User: "0:0",
		Programs:    []definition.Program{{Module: "deploy/images/shell", Package: "mvdan.cc/sh/v3/cmd/gosh", Path: "/bin/sh"}},
		Directories: []definition.Directory{{Path: "/tmp", Mode: 0o1777}},
	}
	img, err := builder(t, thisRepository).Image(t.Context(), def, definition.Native())
	require.NoError(t, err)
	root := extract(t, img.OCI)
	run(t, root, "/bin/sh", "-c", `echo "OFFLINE" > /tmp/debug-echo-availability.txt`)
	text, err := os.ReadFile(filepath.Join(root, "tmp/debug-echo-availability.txt"))
	require.NoError(t, err)
	require.Equal(t, "OFFLINE\n", string(text))
}

func TestBuildErrors(t *testing.T) {
	foreign := map[string]definition.Platform{
		"amd64": {OS: "linux", Arch: "arm64"},
		"arm64": {OS: "linux", Arch: "amd64"},
	}[definition.Native().Arch]
	for name, c := range map[string]struct {
		change   func(*definition.Definition)
		platform definition.Platform
		want     string
	}{
		"missing package": {func(d *definition.Definition) { d.Package = "missing" }, definition.Native(), "hello: "},
		"missing file":    {func(d *definition.Definition) { d.Files[0] = definition.File{Path: "/x", Source: "missing"} }, definition.Native(), "hello: read content of /x"},
		"duplicate path":  {func(d *definition.Definition) { d.Files[0].Path = "/bin/hello" }, definition.Native(), `"/bin/hello" to the image: the path exists`},
		"no cross compiler": {func(d *definition.Definition) { d.Cgo = &definition.Cgo{Packages: []string{"libudev-dev"}} }, foreign,
			"hello: " + foreign.String() + " needs a C cross compiler"},
	} {
		t.Run(name, func(t *testing.T) {
			def := load(t, testRepository, "hello")
			c.change(&def)
			b := builder(t, testRepository)
			if c.platform == foreign {
				t.Setenv("PATH", goDir(t)) // only the Go command
			}
			_, err := b.Image(t.Context(), def, c.platform)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func builder(t *testing.T, root string) assembly.Builder {
	t.Helper()
	absolute, err := filepath.Abs(root)
	require.NoError(t, err)
	return assembly.Builder{Root: absolute, Work: t.TempDir(), Version: "v9", Labels: map[string]string{"extra": "label"}}
}

func load(t *testing.T, root, name string) definition.Definition {
	t.Helper()
	defs, err := definition.Load(filepath.Join(root, "images"), name)
	require.NoError(t, err)
	return defs[0]
}

func build(t *testing.T, root, name string, platform definition.Platform) v1.Image {
	t.Helper()
	img, err := builder(t, root).Image(t.Context(), load(t, root, name), platform)
	require.NoError(t, err)
	return img.OCI
}

func digest(t *testing.T, img v1.Image) string {
	t.Helper()
	hash, err := img.Digest()
	require.NoError(t, err)
	return hash.String()
}

func goDir(t *testing.T) string {
	t.Helper()
	command, err := exec.LookPath("go")
	require.NoError(t, err)
	return filepath.Dir(command)
}

// extract unpacks an image into a directory.
func extract(t *testing.T, img v1.Image) string {
	t.Helper()
	root := t.TempDir()
	content := mutate.Extract(img)
	defer content.Close()
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		require.NoError(t, err)
		require.NoError(t, place(filepath.Join(root, header.Name), header, archive))
	}
}

func place(path string, header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeDir {
		return os.Mkdir(path, 0o755)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, header.FileInfo().Mode())
	if err != nil {
		return fmt.Errorf("create file: %w", err)
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

func files(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if path != root {
			found = append(found, strings.TrimPrefix(path, root+"/"))
		}
		return err
	}))
	return found
}

// run executes a binary in a chroot.
func run(t *testing.T, root string, command ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	}
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	return string(text)
}
