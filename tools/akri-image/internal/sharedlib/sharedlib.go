// Package sharedlib finds the shared libraries that a program needs: its
// interpreter (the dynamic loader) and, recursively, each DT_NEEDED entry. It
// reads ELF files and runs nothing, so it works for a foreign architecture too.
//
// Libraries that a program opens by itself with dlopen cannot be seen this way.
package sharedlib

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Library is a file that a program needs to run.
type Library struct {
	// Path is where the dynamic loader looks for it.
	Path string
	// Source is the regular file with its content, symbolic links resolved.
	Source string
}

// triplets names each architecture's folder of libraries on Debian.
var triplets = map[elf.Machine]string{
	elf.EM_X86_64:  "x86_64-linux-gnu",
	elf.EM_AARCH64: "aarch64-linux-gnu",
}

// Closure lists what the program needs, sorted by path; nothing for a static one.
func Closure(program string) ([]Library, error) {
	file, err := elf.Open(program)
	if err != nil {
		return nil, fmt.Errorf("read program: %w", err)
	}
	defer func() { _ = file.Close() }()
	interpreter, err := interpreterOf(file)
	if err != nil || interpreter == "" {
		return nil, err
	}
	search := closure{machine: file.Machine, found: map[string]Library{}}
	if err := search.addInterpreter(interpreter); err != nil {
		return nil, err
	}
	if err := search.addNeeded(file, program); err != nil {
		return nil, err
	}
	libraries := make([]Library, 0, len(search.found))
	for _, library := range search.found {
		libraries = append(libraries, library)
	}
	slices.SortFunc(libraries, func(a, b Library) int { return strings.Compare(a.Path, b.Path) })
	return libraries, nil
}

// interpreterOf returns the path of the dynamic loader, "" for a static program.
func interpreterOf(file *elf.File) (string, error) {
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, segment.Filesz)
		if _, err := segment.ReadAt(text, 0); err != nil {
			return "", fmt.Errorf("read interpreter: %w", err)
		}
		return string(bytes.TrimRight(text, "\x00")), nil
	}
	return "", nil
}

type closure struct {
	machine elf.Machine
	found   map[string]Library // by the name that programs ask for
}

// addInterpreter keeps the loader's path: it is written into the program.
func (c *closure) addInterpreter(interpreter string) error {
	source, err := filepath.EvalSymlinks(interpreter)
	if err != nil {
		return fmt.Errorf("find interpreter: %w", err)
	}
	c.found[path.Base(interpreter)] = Library{Path: interpreter, Source: source}
	return nil
}

func (c *closure) addNeeded(file *elf.File, asker string) error {
	names, err := file.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read dynamic section of %s: %w", asker, err)
	}
	for _, name := range names {
		if _, done := c.found[name]; done {
			continue
		}
		if err := c.add(name, asker); err != nil {
			return err
		}
	}
	return nil
}

func (c *closure) add(name, asker string) error {
	for _, folder := range c.folders() {
		location := path.Join(folder, name)
		file, err := elf.Open(location)
		if err != nil {
			continue
		}
		defer func() { _ = file.Close() }()
		if file.Machine != c.machine {
			continue
		}
		source, err := filepath.EvalSymlinks(location)
		if err != nil {
			return fmt.Errorf("resolve library: %w", err)
		}
		c.found[name] = Library{Path: location, Source: source}
		return c.addNeeded(file, location)
	}
	return fmt.Errorf("find library %s, needed by %s, in %v: %w", name, asker, c.folders(), os.ErrNotExist)
}

// folders are those the loader searches without a cache file, in its order:
// the image has no /etc/ld.so.cache.
func (c *closure) folders() []string {
	triplet := triplets[c.machine]
	return []string{"/lib/" + triplet, "/usr/lib/" + triplet, "/lib64", "/usr/lib64", "/lib", "/usr/lib"}
}
