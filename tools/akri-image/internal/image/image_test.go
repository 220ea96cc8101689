package image_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"

	"akri.sh/tools/akri-image/internal/definition"
	"akri.sh/tools/akri-image/internal/image"
	"akri.sh/tools/akri-image/internal/rootfs"
)

func TestEqualContentsGiveEqualDigests(t *testing.T) {
	require.Equal(t, digest(t, newImage(t, "amd64", "a")), digest(t, newImage(t, "amd64", "a")))
	require.NotEqual(t, digest(t, newImage(t, "amd64", "a")), digest(t, newImage(t, "amd64", "b")))
	require.NotEqual(t, digest(t, newImage(t, "amd64", "a")), digest(t, newImage(t, "arm64", "a")))
}

func TestWriteArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "a.tar")
	ref := tag(t, "ghcr.io/akri-mesh/a:dev")
	written, err := image.WriteArchive(path, ref, newImage(t, "arm64", "a"))
	require.NoError(t, err)
	require.True(t, written)

	loaded, err := tarball.ImageFromPath(path, &ref)
	require.NoError(t, err)
	require.NoError(t, validate.Image(loaded))
	config, err := loaded.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "linux", config.OS)
	require.Equal(t, "arm64", config.Architecture)
	require.Equal(t, "1:2", config.Config.User)
	require.Equal(t, []string{"/bin/a"}, config.Config.Entrypoint)
	require.Equal(t, map[string]string{"key": "value"}, config.Config.Labels)
	require.Zero(t, config.Created.Unix())
}

func TestArchiveIsWrittenOnChange(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.tar")
	dev, release := tag(t, "ghcr.io/akri-mesh/a:dev"), tag(t, "ghcr.io/akri-mesh/a:v1")
	require.NoError(t, os.WriteFile(path, []byte("not an archive"), 0o600))
	for _, step := range []struct {
		name    string
		ref     name.Tag
		img     v1.Image
		written bool
	}{
		{"replaces another file", dev, newImage(t, "amd64", "a"), true},
		{"same image", dev, newImage(t, "amd64", "a"), false},
		{"other tag", release, newImage(t, "amd64", "a"), true},
		{"other content", release, newImage(t, "amd64", "b"), true},
		{"other platform", release, newImage(t, "arm64", "b"), true},
		{"same image and tag", release, newImage(t, "arm64", "b"), false},
	} {
		written, err := image.WriteArchive(path, step.ref, step.img)
		require.NoError(t, err, step.name)
		require.Equal(t, step.written, written, step.name)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "temporary files are left")
}

func TestPushCreatesIndex(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	ref := tag(t, strings.TrimPrefix(server.URL, "http://")+"/akri-mesh/a:v1")
	pushed, err := image.Push(t.Context(), ref, newImage(t, "amd64", "a"), newImage(t, "arm64", "a"), newImage(t, "arm/v7", "a"))
	require.NoError(t, err)

	index, err := remote.Index(ref)
	require.NoError(t, err)
	require.NoError(t, validate.Index(index))
	have, err := index.Digest()
	require.NoError(t, err)
	require.Equal(t, pushed, have)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	var platforms []string
	for _, descriptor := range manifest.Manifests {
		platforms = append(platforms, descriptor.Platform.String())
	}
	require.Equal(t, []string{"linux/amd64", "linux/arm64", "linux/arm/v7"}, platforms)
}

func TestPushErrorNamesImage(t *testing.T) {
	server := httptest.NewServer(registry.New())
	server.Close()
	ref := tag(t, strings.TrimPrefix(server.URL, "http://")+"/akri-mesh/a:v1")
	_, err := image.Push(t.Context(), ref, newImage(t, "amd64", "a"))
	require.ErrorContains(t, err, "push "+ref.String())
}

func newImage(t *testing.T, arch, content string) v1.Image {
	t.Helper()
	var platform definition.Platform
	require.NoError(t, platform.UnmarshalText([]byte("linux/"+arch)))
	tree := &rootfs.Tree{}
	require.NoError(t, tree.AddFile("/bin/a", 0o755, []byte(content)))
	img, err := image.New(image.Contents{
		Tree:       tree,
		Platform:   platform,
		User:       "1:2",
		Entrypoint: []string{"/bin/a"},
		Labels:     map[string]string{"key": "value"},
	})
	require.NoError(t, err)
	return img
}

func tag(t *testing.T, text string) name.Tag {
	t.Helper()
	ref, err := name.NewTag(text)
	require.NoError(t, err)
	return ref
}

func digest(t *testing.T, img v1.Image) string {
	t.Helper()
	hash, err := img.Digest()
	require.NoError(t, err)
	return hash.String()
}
