// Package assembly turns an image definition into an image: it compiles the
// programs, collects the libraries and files, and puts them on an empty base.
package assembly

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"akri.sh/tools/akri-image/internal/definition"
	"akri.sh/tools/akri-image/internal/image"
	"akri.sh/tools/akri-image/internal/program"
	"akri.sh/tools/akri-image/internal/rootfs"
	"akri.sh/tools/akri-image/internal/sharedlib"
)

// Labels that every image carries, beside those of Builder.Labels.
const (
	labelTitle       = "org.opencontainers.image.title"
	labelDescription = "org.opencontainers.image.description"
	labelVersion     = "org.opencontainers.image.version"
)

// Builder makes images from the sources of one repository.
type Builder struct {
	// Root is the repository's folder.
	Root string
	// Work keeps compiled programs, so that unchanged ones are not linked again.
	Work string
	// Version is what programs and images call themselves.
	Version string
	// Labels are added to every image.
	Labels map[string]string
}

// Image makes def's image for one platform.
func (b Builder) Image(ctx context.Context, def definition.Definition, platform definition.Platform) (v1.Image, error) {
	a := assembly{Builder: b, def: def, platform: platform, tree: &rootfs.Tree{}}
	if err := a.collect(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", def.Name, err)
	}
	made, err := image.New(image.Contents{
		Tree:       a.tree,
		Platform:   platform,
		User:       def.User,
		Entrypoint: []string{a.entrypoint()},
		Labels:     a.labels(),
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", def.Name, err)
	}
	return made, nil
}

// assembly is one image in the making.
type assembly struct {
	Builder
	def      definition.Definition
	platform definition.Platform
	tree     *rootfs.Tree
}

func (a assembly) entrypoint() string { return "/bin/" + a.def.Name }

func (a assembly) labels() map[string]string {
	labels := map[string]string{
		labelTitle:       a.def.Name,
		labelDescription: a.def.Description,
		labelVersion:     a.Version,
	}
	maps.Copy(labels, a.Labels)
	return labels
}

func (a assembly) collect(ctx context.Context) error {
	if err := a.addProgram(ctx, a.entrypoint(), program.Program{Folder: a.def.Package, Package: ".", Cgo: a.def.Cgo}); err != nil {
		return err
	}
	for _, p := range a.def.Programs {
		if err := a.addProgram(ctx, p.Path, program.Program{Folder: p.Module, Package: p.Package}); err != nil {
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

// addProgram compiles a program and adds it with the libraries it needs; a
// static program needs none.
func (a assembly) addProgram(ctx context.Context, path string, p program.Program) error {
	p.Folder = filepath.Join(a.Root, p.Folder)
	p.Platform, p.Version = a.platform, a.Version
	binary := filepath.Join(a.Work, a.platform.OS+"-"+a.platform.Arch, a.def.Name, path)
	if err := program.Compile(ctx, p, binary); err != nil {
		return err
	}
	if err := a.tree.AddFileFrom(path, 0o755, binary); err != nil {
		return err
	}
	libraries, err := sharedlib.Closure(binary)
	if err != nil {
		return err
	}
	for _, library := range libraries {
		if err := a.tree.AddFileFrom(library.Path, 0o755, library.Source); err != nil {
			return err
		}
	}
	return nil
}

func (a assembly) addFile(file definition.File) error {
	if file.Source == "" {
		return a.tree.AddFile(file.Path, uint32(file.Mode), []byte(file.Content))
	}
	return a.tree.AddFileFrom(file.Path, uint32(file.Mode), filepath.Join(a.Root, file.Source))
}
