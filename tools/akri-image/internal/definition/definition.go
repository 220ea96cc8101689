// Package definition reads image definitions, one YAML file per image.
package definition

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// NonRoot is the default user of an image.
const NonRoot = "65532:65532"

// Definition is the content of one image.
type Definition struct {
	// Name is the name of the image and of its file: deploy/images/<name>.yaml.
	Name string `json:"name"`
	// Description is the image's label org.opencontainers.image.description.
	Description string `json:"description"`
	// Package is the directory of the Go main package, relative to the repository. Its binary is
	// the entrypoint, at /bin/<name>.
	Package string `json:"package"`
	// User is the numeric "uid:gid" of the process. Default: NonRoot.
	User string `json:"user"`
	// Platforms of the image. Default: DefaultPlatforms.
	Platforms []Platform `json:"platforms"`
	// Cgo is set for a binary with C libraries. The image has the libraries that the binary names.
	Cgo *Cgo `json:"cgo"`
	// Programs are additional Go binaries.
	Programs []Program `json:"programs"`
	// Files are copied from the repository or written as given.
	Files []File `json:"files"`
	// Directories are created. Parents of other entries are created without being listed.
	Directories []Directory `json:"directories"`
}

// Cgo is what linking with C libraries needs.
type Cgo struct {
	// Packages are the Debian packages with the headers and libraries.
	Packages []string `json:"packages"`
}

// Program is a Go binary in addition to the entrypoint.
type Program struct {
	// Module is the directory of the module that pins the version, relative to the repository.
	Module string `json:"module"`
	// Package is the import path of the main package.
	Package string `json:"package"`
	// Path in the image.
	Path string `json:"path"`
}

// File is one regular file. Exactly one of Content and Source is set.
type File struct {
	// Path in the image.
	Path string `json:"path"`
	// Content is the text of the file.
	Content string `json:"content"`
	// Source is a path relative to the repository.
	Source string `json:"source"`
	// Mode holds the permission bits. Default: 0644.
	Mode Mode `json:"mode"`
}

// Directory is one directory.
type Directory struct {
	// Path in the image.
	Path string `json:"path"`
	// Mode holds the permission bits. Default: 0755.
	Mode Mode `json:"mode"`
}

// Load reads all definitions in dir, or the named ones, sorted by name. The error reports all
// problems.
func Load(dir string, names ...string) ([]Definition, error) {
	if len(names) == 0 {
		all, err := namesIn(dir)
		if err != nil {
			return nil, err
		}
		names = all
	}
	names = slices.Clone(names)
	slices.Sort(names)
	var defs []Definition
	var errs []error
	for _, name := range slices.Compact(names) {
		def, err := read(filepath.Join(dir, name+".yaml"))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		defs = append(defs, def)
	}
	return defs, errors.Join(errs...)
}

func namesIn(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no image definitions in %q", dir)
	}
	names := make([]string, 0, len(files))
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	return names, nil
}

func read(file string) (Definition, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Definition{}, fmt.Errorf("read definition: %w", err)
	}
	var def Definition
	if err := yaml.UnmarshalStrict(text, &def); err != nil {
		return Definition{}, fmt.Errorf("%s: %w", file, err)
	}
	def.setDefaults()
	if want := strings.TrimSuffix(filepath.Base(file), ".yaml"); def.Name != want {
		return Definition{}, fmt.Errorf("%s: name: must be %q like the file, not %q", file, want, def.Name)
	}
	if err := def.validate(); err != nil {
		return Definition{}, fmt.Errorf("%s: %w", file, err)
	}
	return def, nil
}

func (d *Definition) setDefaults() {
	d.User = cmp.Or(d.User, NonRoot)
	if len(d.Platforms) == 0 {
		d.Platforms = DefaultPlatforms()
	}
	for i := range d.Files {
		d.Files[i].Mode = cmp.Or(d.Files[i].Mode, 0o644)
	}
	for i := range d.Directories {
		d.Directories[i].Mode = cmp.Or(d.Directories[i].Mode, 0o755)
	}
}
