package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"akri.sh/tools/akri-image/internal/assembly"
	"akri.sh/tools/akri-image/internal/definition"
	"akri.sh/tools/akri-image/internal/image"
)

type buildCommand struct {
	buildFlags
	Out      string                `default:"${cache}/images" env:"AKRI_OUT" help:"Directory of the archives NAME.tar, or NAME-ARCH.tar for several platforms."`
	Platform []definition.Platform `env:"AKRI_PLATFORM" help:"Platforms to build for, such as linux/arm64 (default: this machine's)."`
}

// Run builds the images one by one. The Go command uses all cores, and two at once would compile
// common dependencies twice.
func (c *buildCommand) Run(ctx context.Context) error {
	if len(c.Platform) == 0 {
		c.Platform = []definition.Platform{definition.Native()}
	}
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
	for _, def := range defs {
		for _, platform := range offered(def, c.Platform) {
			if err := c.build(ctx, builder, def, platform); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *buildCommand) build(ctx context.Context, builder assembly.Builder, def definition.Definition, platform definition.Platform) error {
	started := time.Now()
	ref, err := c.reference(def)
	if err != nil {
		return err
	}
	announce(def, platform)
	img, err := builder.Image(ctx, def, platform)
	if err != nil {
		return err
	}
	path := c.archive(def, platform)
	written, err := image.WriteArchive(path, ref, img.OCI)
	if err != nil {
		return fmt.Errorf("%s: %w", def.Name, err)
	}
	return report(img.OCI, path, written, time.Since(started))
}

func (c *buildCommand) archive(def definition.Definition, platform definition.Platform) string {
	file := def.Name
	if len(c.Platform) > 1 {
		file += "-" + platform.Machine()
	}
	return filepath.Join(c.Out, file+".tar")
}

// offered returns the platforms that the image exists for and prints the others.
func offered(def definition.Definition, platforms []definition.Platform) []definition.Platform {
	var kept []definition.Platform
	for _, platform := range platforms {
		if !def.Offers(platform) {
			fmt.Fprintf(os.Stderr, "%s: skipped %s, which its definition does not list\n", def.Name, platform)
			continue
		}
		kept = append(kept, platform)
	}
	return kept
}

// announce prints the step, because the first compilation takes minutes.
func announce(def definition.Definition, platform definition.Platform) {
	fmt.Fprintf(os.Stderr, "building %s for %s\n", def.Name, platform)
}

func report(img v1.Image, path string, written bool, elapsed time.Duration) error {
	digest, err := img.Digest()
	if err != nil {
		return fmt.Errorf("compute digest: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	state := "unchanged"
	if written {
		state = "written"
	}
	fmt.Printf("%-36s %s %5.1f MiB %5.1fs %s\n", filepath.Base(path), digest, float64(info.Size())/(1<<20), elapsed.Seconds(), state)
	return nil
}
