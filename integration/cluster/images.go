package cluster

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sync/errgroup"
)

// Images of the cluster itself, built from its binaries. The registry does not exist, so that
// nothing is pulled.
const (
	pauseImage = "cluster.invalid/pause:1"
	dnsImage   = "cluster.invalid/coredns:1"
)

func systemImages(dir string) []string {
	return []string{filepath.Join(dir, "pause.tar"), filepath.Join(dir, "coredns.tar")}
}

// writeSystemImages writes them for nodes of the architecture, or of this machine's if it is empty.
func (m *machine) writeSystemImages(architecture, dir string) error {
	if err := WriteImage(filepath.Join(dir, "pause.tar"), pauseImage, m.binFor(architecture, "pause")); err != nil {
		return err
	}
	return WriteImage(filepath.Join(dir, "coredns.tar"), dnsImage, m.binFor(architecture, "coredns"))
}

// WriteImage writes an image with one static Go binary, its entrypoint, as a docker-archive tar
// file.
func WriteImage(path, ref, binary string) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("parse image name: %w", err)
	}
	image, err := binaryImage(binary)
	if err != nil {
		return fmt.Errorf("build image %s: %w", ref, err)
	}
	if err := tarball.WriteToFile(path, tag, image); err != nil {
		return fmt.Errorf("write image %s: %w", ref, err)
	}
	return nil
}

func binaryImage(binary string) (v1.Image, error) {
	architecture, err := architectureOf(binary)
	if err != nil {
		return nil, err
	}
	files, err := binaryLayer(binary)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithCompressionLevel(gzip.NoCompression), // containerd reads it from the same disk
	)
	if err != nil {
		return nil, err
	}
	// containerd ignores an image without operating system and architecture.
	base, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: architecture, Config: v1.Config{Entrypoint: []string{"/" + filepath.Base(binary)}},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(base, layer)
}

// architectureOf returns the architecture for which a Go binary was built.
func architectureOf(binary string) (string, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return "", err
	}
	for _, setting := range info.Settings {
		if setting.Key == "GOARCH" {
			return setting.Value, nil
		}
	}
	return "", fmt.Errorf("%s has no architecture", binary)
}

func binaryLayer(binary string) ([]byte, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	header := &tar.Header{Name: filepath.Base(binary), Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err = w.Close() // writes the end of the archive
	return files.Bytes(), err
}

// LoadImage imports the images of a docker-archive tar file on all nodes. Pods use them with
// imagePullPolicy Never or IfNotPresent.
func (c *Cluster) LoadImage(ctx context.Context, tar string) error {
	return c.loadImages(ctx, []string{tar})
}

func (c *Cluster) loadImages(ctx context.Context, tars []string) error {
	if len(tars) == 0 {
		return nil
	}
	if c.machine == nil {
		return fmt.Errorf("load images: %w; push them to a registry that its nodes can reach", ErrExternal)
	}
	c.step(fmt.Sprintf("loading %d images", len(tars)))
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range c.nodes {
		group.Go(func() error { return node.loadImages(ctx, tars) })
	}
	return group.Wait()
}

// loadImages passes each file as standard input, because a node does not see all directories of the
// machine.
func (n Node) loadImages(ctx context.Context, tars []string) error {
	for _, path := range tars {
		if err := n.loadImage(ctx, path); err != nil {
			return fmt.Errorf("load %s on %s: %w", path, n.name, err)
		}
	}
	return nil
}

func (n Node) loadImage(ctx context.Context, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd, err := n.ctr(ctx, "images", "import", "-")
	if err != nil {
		return err
	}
	cmd.Stdin = file
	_, err = combined(cmd)
	return err
}
