package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"akri.sh/tools/akri-image/internal/assembly"
	"akri.sh/tools/akri-image/internal/definition"
	"akri.sh/tools/akri-image/internal/image"
	"akri.sh/tools/akri-image/internal/sbom"
)

type pushCommand struct {
	buildFlags
	Platform []definition.Platform `default:"linux/amd64,linux/arm64,linux/arm/v7" env:"AKRI_PLATFORM" help:"Platforms to build for."`
	Out      string                `env:"AKRI_OUT" help:"Directory for NAME.digest, which has the image by digest, and NAME.spdx.json, its SBOM (default: none)."`
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
	images := make([][]assembly.Image, len(defs))
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

func (c *pushCommand) build(ctx context.Context, builder assembly.Builder, def definition.Definition) ([]assembly.Image, error) {
	var images []assembly.Image
	for _, platform := range offered(def, c.Platform) {
		fmt.Fprintf(os.Stderr, "building %s for %s\n", def.Name, platform)
		img, err := builder.Image(ctx, def, platform)
		if err != nil {
			return nil, err
		}
		images = append(images, img)
	}
	return images, nil
}

func (c *pushCommand) push(ctx context.Context, def definition.Definition, images []assembly.Image) error {
	if len(images) == 0 {
		return fmt.Errorf("%s is not available for the platforms %v", def.Name, c.Platform)
	}
	started := time.Now()
	ref, err := c.reference(def)
	if err != nil {
		return err
	}
	platforms := make([]v1.Image, len(images))
	for i, img := range images {
		platforms[i] = img.OCI
	}
	digest, err := image.Push(ctx, ref, platforms...)
	if err != nil {
		return err
	}
	if c.Out != "" {
		if err := c.record(ref.Context().Digest(digest.String()), images); err != nil {
			return fmt.Errorf("%s: %w", def.Name, err)
		}
	}
	fmt.Printf("%s@%s %d platforms %.1fs\n", ref, digest, len(images), time.Since(started).Seconds())
	return nil
}

// record writes what the signatures of a release are about.
func (c *pushCommand) record(pushed name.Digest, images []assembly.Image) error {
	hash, err := v1.NewHash(pushed.DigestStr())
	if err != nil {
		return fmt.Errorf("read digest: %w", err)
	}
	short := path.Base(pushed.RepositoryStr())
	described := make([]sbom.Image, len(images))
	for i, img := range images {
		if described[i], err = describe(img); err != nil {
			return err
		}
	}
	document, err := sbom.Document(short, c.Version, hash, described)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.Out, short+".spdx.json"), document, 0o644); err != nil {
		return fmt.Errorf("write SBOM: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.Out, short+".digest"), []byte(pushed.String()+"\n"), 0o644); err != nil {
		return fmt.Errorf("write digest: %w", err)
	}
	return nil
}

func describe(img assembly.Image) (sbom.Image, error) {
	digest, err := img.OCI.Digest()
	if err != nil {
		return sbom.Image{}, fmt.Errorf("compute digest: %w", err)
	}
	packages, err := img.Packages()
	if err != nil {
		return sbom.Image{}, err
	}
	return sbom.Image{Digest: digest, Platform: img.Platform.String(), Packages: packages}, nil
}
