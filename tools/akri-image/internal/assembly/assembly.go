// Package assembly builds an image from its definition: it compiles the binaries and adds them,
// their libraries and the files to an empty base image.
package assembly

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"akri.sh/tools/akri-image/internal/binary"
	"akri.sh/tools/akri-image/internal/definition"
	"akri.sh/tools/akri-image/internal/image"
	"akri.sh/tools/akri-image/internal/rootfs"
	"akri.sh/tools/akri-image/internal/sbom"
	"akri.sh/tools/akri-image/internal/sharedlib"
)

// Builder builds images from the sources of one repository.
type Builder struct {
	// Root is the repository's directory.
	Root string
	// Work is the directory of compiled binaries. Unchanged binaries are not linked again.
	Work string
	// Version is the version of binaries and images.
	Version string
	// Labels are added to every image.
	Labels map[string]string
}

// Image is the image of one platform.
type Image struct {
	OCI v1.Image
	// Platform of the image.
	Platform definition.Platform

	sources // of the files in the image
	version string
}

// sources are files of this machine.
type sources struct {
	binaries  []string
	libraries []string
}

// Packages returns the Go modules and Debian packages in the image.
func (i Image) Packages() ([]sbom.Package, error) {
	var packages []sbom.Package
	for _, binary := range i.binaries {
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return nil, fmt.Errorf("read modules: %w", err)
		}
		packages = append(packages, sbom.Modules(info, i.version)...)
	}
	for _, library := range i.libraries {
		pkg, err := sbom.Debian(library)
		if err != nil {
			return nil, err
		}
		packages = append(packages, pkg)
	}
	return sbom.Sorted(packages), nil
}

// Image builds the image for one platform.
func (b Builder) Image(ctx context.Context, def definition.Definition, platform definition.Platform) (Image, error) {
	a := assembly{Builder: b, def: def, platform: platform, tree: &rootfs.Tree{}}
	if err := a.collect(ctx); err != nil {
		return Image{}, fmt.Errorf("%s: %w", def.Name, err)
	}
	img, err := image.New(image.Contents{
		Tree:       a.tree,
		Platform:   platform,
		User:       def.User,
		Entrypoint: []string{a.entrypoint()},
		Labels:     a.labels(),
	})
	if err != nil {
		return Image{}, fmt.Errorf("%s: %w", def.Name, err)
	}
	return Image{OCI: img, Platform: platform, sources: a.sources, version: a.Version}, nil
}

// assembly is the state of building one image.
type assembly struct {
	Builder
	def      definition.Definition
	platform definition.Platform
	tree     *rootfs.Tree
	sources
}

func (a assembly) entrypoint() string { return "/bin/" + a.def.Name }

func (a assembly) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       a.def.Name,
		"org.opencontainers.image.description": a.def.Description,
		"org.opencontainers.image.version":     a.Version,
	}
	maps.Copy(labels, a.Labels)
	return labels
}

func (a *assembly) collect(ctx context.Context) error {
	if err := a.addBinary(ctx, a.entrypoint(), binary.Options{Dir: a.def.Package, Package: ".", Cgo: a.def.Cgo}); err != nil {
		return err
	}
	for _, p := range a.def.Programs {
		if err := a.addBinary(ctx, p.Path, binary.Options{Dir: p.Module, Package: p.Package}); err != nil {
			return err
		}
	}
	for _, file := range a.def.Files {
		if err := a.addFile(file); err != nil {
			return err
		}
	}
	for _, dir := range a.def.Directories {
		if err := a.tree.AddDirectory(dir.Path, uint32(dir.Mode)); err != nil {
			return err
		}
	}
	return nil
}

// addBinary compiles a binary and adds it with its shared libraries.
func (a *assembly) addBinary(ctx context.Context, path string, options binary.Options) error {
	options.Dir = filepath.Join(a.Root, options.Dir)
	options.Platform, options.Version = a.platform, a.Version
	output := filepath.Join(a.Work, a.platform.OS+"-"+a.platform.Machine(), a.def.Name, path)
	if err := binary.Compile(ctx, options, output); err != nil {
		return err
	}
	if err := a.tree.AddFileFrom(path, 0o755, output); err != nil {
		return err
	}
	a.binaries = append(a.binaries, output)
	libraries, err := sharedlib.Closure(output)
	if err != nil {
		return err
	}
	for _, library := range libraries {
		if err := a.tree.AddFileFrom(library.Path, 0o755, library.Source); err != nil {
			return err
		}
		a.libraries = append(a.libraries, library.Source)
	}
	return nil
}

func (a assembly) addFile(file definition.File) error {
	if file.Source == "" {
		return a.tree.AddFile(file.Path, uint32(file.Mode), []byte(file.Content))
	}
	return a.tree.AddFileFrom(file.Path, uint32(file.Mode), filepath.Join(a.Root, file.Source))
}
