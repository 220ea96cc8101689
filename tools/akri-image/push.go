package main

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"akri.sh/tools/akri-image/internal/assembly"
	"akri.sh/tools/akri-image/internal/definition"
	"akri.sh/tools/akri-image/internal/image"
)

type pushCommand struct {
	buildFlags
	Platform []definition.Platform `default:"linux/amd64,linux/arm64" env:"AKRI_PLATFORM" help:"Platforms to build for."`
}

// Run builds all images before it pushes the first, so that a release is complete.
func (c *pushCommand) Run(ctx context.Context) error {
	defs, err := c.load()
	if err != nil {
		return err
	}
	builder, err := c.builder()
	if err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	images := make([][]v1.Image, len(defs))
	for i, def := range defs {
		if images[i], err = c.build(ctx, builder, def); err != nil {
			return err
		}
	}
	for i, def := range defs {
		if err := c.push(ctx, def, images[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *pushCommand) build(ctx context.Context, builder assembly.Builder, def definition.Definition) ([]v1.Image, error) {
	var images []v1.Image
	for _, platform := range offered(def, c.Platform) {
		announce(def, platform)
		img, err := builder.Image(ctx, def, platform)
		if err != nil {
			return nil, err
		}
		images = append(images, img)
	}
	return images, nil
}

func (c *pushCommand) push(ctx context.Context, def definition.Definition, images []v1.Image) error {
	if len(images) == 0 {
		return fmt.Errorf("%s is not available for the platforms %v", def.Name, c.Platform)
	}
	started := time.Now()
	ref, err := c.reference(def)
	if err != nil {
		return err
	}
	digest, err := image.Push(ctx, ref, images...)
	if err != nil {
		return err
	}
	fmt.Printf("%s@%s %d platforms %.1fs\n", ref, digest, len(images), time.Since(started).Seconds())
	return nil
}
