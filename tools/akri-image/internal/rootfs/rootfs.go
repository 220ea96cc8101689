// Package rootfs writes the files of an image as a reproducible tar archive: sorted, owned by root
// and without times.
package rootfs

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Epoch is the time of all files and images.
var Epoch = time.Unix(0, 0).UTC()

// Tree holds the files and directories of an image. The zero value is empty.
type Tree struct {
	entries map[string]entry
}

type entry struct {
	mode      int64
	directory bool
	content   []byte
}

// AddFile adds a file. It is an error if the path exists.
func (t *Tree) AddFile(name string, mode uint32, content []byte) error {
	return t.add(name, entry{mode: int64(mode), content: content})
}

// AddFileFrom adds a file with the content of source.
func (t *Tree) AddFileFrom(name string, mode uint32, source string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("read content of %s: %w", name, err)
	}
	return t.AddFile(name, mode, content)
}

// AddDirectory adds a directory. It is an error if the path exists.
func (t *Tree) AddDirectory(name string, mode uint32) error {
	return t.add(name, entry{mode: int64(mode), directory: true})
}

func (t *Tree) add(name string, e entry) error {
	if t.entries == nil {
		t.entries = map[string]entry{}
	}
	if _, exists := t.entries[name]; exists {
		return fmt.Errorf("add %q to the image: the path exists", name)
	}
	t.entries[name] = e
	return nil
}

// Tar returns the tree with all parent directories as an archive.
func (t *Tree) Tar() ([]byte, error) {
	entries, err := t.withParents()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if err := write(archive, name, entries[name]); err != nil {
			return nil, fmt.Errorf("write %q: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("close archive: %w", err)
	}
	return out.Bytes(), nil
}

func (t *Tree) withParents() (map[string]entry, error) {
	entries := maps.Clone(t.entries)
	for name := range t.entries {
		for parent := path.Dir(name); parent != "/"; parent = path.Dir(parent) {
			e, present := entries[parent]
			if present && !e.directory {
				return nil, fmt.Errorf("add %q to the image: %q is a file", name, parent)
			}
			if !present {
				entries[parent] = entry{mode: 0o755, directory: true}
			}
		}
	}
	return entries, nil
}

func write(archive *tar.Writer, name string, e entry) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     strings.TrimPrefix(name, "/"),
		Mode:     e.mode,
		Size:     int64(len(e.content)),
		ModTime:  Epoch,
		Format:   tar.FormatPAX,
	}
	if e.directory {
		header.Typeflag = tar.TypeDir
		header.Name += "/"
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(e.content)
	return err
}
