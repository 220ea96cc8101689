// Package sharedlib finds the shared libraries of a binary: its interpreter (the dynamic loader)
// and, recursively, each DT_NEEDED entry. It only reads ELF files, so it works for other
// architectures too.
//
// It does not find libraries that a binary opens with dlopen.
package sharedlib

import (
	"bytes"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Library is a file that a binary needs to run.
type Library struct {
	// Path is where the dynamic loader searches for it.
	Path string
	// Source is the regular file with its content, symbolic links resolved.
	Source string
}

// triplets are the names of Debian's library directories by architecture.
var triplets = map[elf.Machine]string{
	elf.EM_X86_64:  "x86_64-linux-gnu",
	elf.EM_AARCH64: "aarch64-linux-gnu",
	elf.EM_ARM:     "arm-linux-gnueabihf",
}

// Closure returns the libraries of a binary sorted by path, and none for a static binary.
func Closure(binary string) ([]Library, error) {
	file, err := elf.Open(binary)
	if err != nil {
		return nil, fmt.Errorf("read binary: %w", err)
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
	if err := search.addNeeded(file, binary); err != nil {
		return nil, err
	}
	byPath := func(a, b Library) int { return strings.Compare(a.Path, b.Path) }
	return slices.SortedFunc(maps.Values(search.found), byPath), nil
}

// interpreterOf returns the path of the dynamic loader, "" for a static binary.
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
	found   map[string]Library // by the name in DT_NEEDED
}

// addInterpreter adds the loader at its path, which is part of the binary.
func (c *closure) addInterpreter(interpreter string) error {
	source, err := filepath.EvalSymlinks(interpreter)
	if err != nil {
		return fmt.Errorf("find interpreter: %w", err)
	}
	c.found[path.Base(interpreter)] = Library{Path: interpreter, Source: source}
	return nil
}

func (c *closure) addNeeded(file *elf.File, neededBy string) error {
	names, err := file.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read dynamic section of %s: %w", neededBy, err)
	}
	for _, name := range names {
		if _, done := c.found[name]; done {
			continue
		}
		if err := c.add(name, neededBy); err != nil {
			return err
		}
	}
	return nil
}

func (c *closure) add(name, neededBy string) error {
	for _, dir := range c.directories() {
		location := path.Join(dir, name)
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
	return fmt.Errorf("find library %s, needed by %s, in %v: %w", name, neededBy, c.directories(), os.ErrNotExist)
}

// directories are the ones that the loader searches, in its order, without /etc/ld.so.cache, which
// images do not have.
func (c *closure) directories() []string {
	triplet := triplets[c.machine]
	return []string{"/lib/" + triplet, "/usr/lib/" + triplet, "/lib64", "/usr/lib64", "/lib", "/usr/lib"}
}
