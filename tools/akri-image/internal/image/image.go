// Package image builds OCI images on an empty base and writes them to an archive or, as an index of
// several platforms, to a registry.
package image

import (
	"bytes"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"akri.sh/tools/akri-image/internal/definition"
	"akri.sh/tools/akri-image/internal/rootfs"
)

// searchPath is the PATH of a shell in the image.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Contents describes an image.
type Contents struct {
	Tree       *rootfs.Tree
	Platform   definition.Platform
	User       string
	Entrypoint []string
	Labels     map[string]string
}

// New builds an image of one layer on an empty base. Equal contents give equal digests.
func New(contents Contents) (v1.Image, error) {
	archive, err := contents.Tree.Tar()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("create layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err = mutate.ConfigFile(base, config(contents))
	if err != nil {
		return nil, fmt.Errorf("set config: %w", err)
	}
	img, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: rootfs.Epoch}, CreatedBy: "akri-image"},
	})
	if err != nil {
		return nil, fmt.Errorf("append layer: %w", err)
	}
	return img, nil
}

// config sets operating system and architecture. containerd ignores an image without them.
func config(contents Contents) *v1.ConfigFile {
	return &v1.ConfigFile{
		OS:           contents.Platform.OS,
		Architecture: contents.Platform.Arch,
		Variant:      contents.Platform.Variant,
		Created:      v1.Time{Time: rootfs.Epoch},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       contents.User,
			Entrypoint: contents.Entrypoint,
			Env:        []string{searchPath},
			WorkingDir: "/",
			Labels:     contents.Labels,
		},
	}
}
