package image

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push uploads the images, one per platform, as an index and returns the digest of the index. It
// uses the credentials of `docker login`.
func Push(ctx context.Context, ref name.Tag, images ...v1.Image) (v1.Hash, error) {
	addenda := make([]mutate.IndexAddendum, 0, len(images))
	for _, img := range images {
		config, err := img.ConfigFile()
		if err != nil {
			return v1.Hash{}, fmt.Errorf("read config: %w", err)
		}
		addenda = append(addenda, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: config.Platform()}})
	}
	index := mutate.AppendManifests(empty.Index, addenda...)
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return v1.Hash{}, fmt.Errorf("push %s: %w", ref, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, fmt.Errorf("compute digest of %s: %w", ref, err)
	}
	return digest, nil
}
