package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"akri.sh/tools/akri-image/internal/assembly"
	"akri.sh/tools/akri-image/internal/definition"
	"akri.sh/tools/akri-image/internal/image"
)

type buildCommand struct {
	buildFlags
	Out      string                `default:"${cache}/images" env:"AKRI_OUT" help:"Directory of the archives NAME.tar, or NAME-ARCH.tar for several platforms."`
	Platform []definition.Platform `env:"AKRI_PLATFORM" help:"Platforms to build for, such as linux/arm64 (default: this machine's)."`
}

// Run builds the first image alone, and as many of the others at the same time as the machine has
// CPUs. The Go command compiles with all CPUs and links with one, and two at once would compile
// common dependencies twice. The first image has most of them.
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

	builds := c.builds(builder, defs)
	if len(builds) == 0 {
		return nil
	}
	if err := builds[0](ctx, 1, len(builds)); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for i, build := range builds[1:] {
		group.Go(func() error { return build(ctx, i+2, len(builds)) })
	}
	return group.Wait()
}

// buildFunc builds an image for one platform. It shows its number and the number of all.
type buildFunc func(ctx context.Context, number, all int) error

func (c *buildCommand) builds(builder assembly.Builder, defs []definition.Definition) []buildFunc {
	var builds []buildFunc
	for _, def := range defs {
		for _, platform := range offered(def, c.Platform) {
			builds = append(builds, func(ctx context.Context, number, all int) error {
				fmt.Fprintf(os.Stderr, "%d of %d: building %s for %s\n", number, all, def.Name, platform)
				return c.build(ctx, builder, def, platform)
			})
		}
	}
	return builds
}

func (c *buildCommand) build(ctx context.Context, builder assembly.Builder, def definition.Definition, platform definition.Platform) error {
	started := time.Now()
	ref, err := c.reference(def)
	if err != nil {
		return err
	}
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
