package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// WriteArchive writes img as a docker-archive that `ctr images import` and
// `docker load` read. A file that holds the same image under the same name
// stays untouched; written tells. The file is never seen half written.
func WriteArchive(path string, ref name.Tag, img v1.Image) (written bool, err error) {
	same, err := holds(path, ref, img)
	if err != nil || same {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, fmt.Errorf("create folder: %w", err)
	}
	draft, err := os.CreateTemp(filepath.Dir(path), ".draft-*")
	if err != nil {
		return false, fmt.Errorf("create archive: %w", err)
	}
	err = errors.Join(tarball.Write(ref, img, draft), draft.Chmod(0o644), draft.Close())
	if err == nil {
		err = os.Rename(draft.Name(), path)
	}
	if err != nil {
		return false, fmt.Errorf("write archive: %w", errors.Join(err, os.Remove(draft.Name())))
	}
	return true, nil
}

// holds compares tables of contents: they name config and layers by digest. A
// file that is missing or is no archive holds nothing.
func holds(path string, ref name.Tag, img v1.Image) (bool, error) {
	want, err := tarball.ComputeManifest(map[name.Reference]v1.Image{ref: img})
	if err != nil {
		return false, fmt.Errorf("compute archive manifest: %w", err)
	}
	have, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(path) })
	if err != nil {
		return false, nil
	}
	return slices.EqualFunc(want, have, sameContent), nil
}

func sameContent(a, b tarball.Descriptor) bool {
	return a.Config == b.Config && slices.Equal(a.RepoTags, b.RepoTags) && slices.Equal(a.Layers, b.Layers)
}
