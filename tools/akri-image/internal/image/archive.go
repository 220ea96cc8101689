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

// WriteArchive writes img atomically as a docker-archive for `ctr images import` and `docker load`.
// It does not write a file that holds the same image under the same name; written reports that.
func WriteArchive(path string, ref name.Tag, img v1.Image) (written bool, err error) {
	unchanged, err := holds(path, ref, img)
	if err != nil || unchanged {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, fmt.Errorf("create directory: %w", err)
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

// holds reports whether the archive has the image. It compares manifests, which name config and
// layers by digest. A missing or invalid archive has no image.
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
