package image

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push uploads the images, one per platform, as an index and returns the digest of the index. It
// uses the credentials of `docker login`.
func Push(ctx context.Context, ref name.Tag, images ...v1.Image) (v1.Hash, error) {
	addenda := make([]mutate.IndexAddendum, 0, len(images))
	for _, img := range images {
		addendum, err := describe(img)
		if err != nil {
			return v1.Hash{}, err
		}
		addenda = append(addenda, addendum)
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

func describe(img v1.Image) (mutate.IndexAddendum, error) {
	config, err := img.ConfigFile()
	if err != nil {
		return mutate.IndexAddendum{}, fmt.Errorf("read config: %w", err)
	}
	descriptor, err := partial.Descriptor(img)
	if err != nil {
		return mutate.IndexAddendum{}, fmt.Errorf("describe image: %w", err)
	}
	descriptor.Platform = config.Platform()
	return mutate.IndexAddendum{Add: img, Descriptor: *descriptor}, nil
}
