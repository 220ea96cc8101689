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
	settings
	Out      string                `default:"${cache}/images" env:"AKRI_OUT" help:"Folder of the archives: NAME.tar, or NAME-ARCH.tar when there is more than one platform."`
	Platform []definition.Platform `env:"AKRI_PLATFORM" help:"Platforms to build for, such as linux/arm64; this machine's by default."`
}

// Run builds one image after the other: the Go command itself uses all cores,
// and two of them at once would compile common dependencies twice.
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
	made, err := builder.Image(ctx, def, platform)
	if err != nil {
		return err
	}
	path := c.archive(def, platform)
	written, err := image.WriteArchive(path, ref, made)
	if err != nil {
		return fmt.Errorf("%s: %w", def.Name, err)
	}
	return report(made, path, written, time.Since(started))
}

func (c *buildCommand) archive(def definition.Definition, platform definition.Platform) string {
	file := def.Name
	if len(c.Platform) > 1 {
		file += "-" + platform.Arch
	}
	return filepath.Join(c.Out, file+".tar")
}

// offered keeps the platforms that an image exists for and says which it drops.
func offered(def definition.Definition, platforms []definition.Platform) []definition.Platform {
	var kept []definition.Platform
	for _, platform := range platforms {
		if !def.Offers(platform) {
			fmt.Fprintf(os.Stderr, "%s: not for %s, its definition says\n", def.Name, platform)
			continue
		}
		kept = append(kept, platform)
	}
	return kept
}

// announce says what is under way: the first compilation takes minutes.
func announce(def definition.Definition, platform definition.Platform) {
	fmt.Fprintf(os.Stderr, "building %s for %s\n", def.Name, platform)
}

func report(made v1.Image, path string, written bool, elapsed time.Duration) error {
	digest, err := made.Digest()
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
