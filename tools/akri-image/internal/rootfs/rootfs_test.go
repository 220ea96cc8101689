package rootfs_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/tools/akri-image/internal/rootfs"
)

func TestTarIsReproducible(t *testing.T) {
	tree := &rootfs.Tree{}
	require.NoError(t, tree.AddFile("/usr/bin/b", 0o755, []byte("content")))
	require.NoError(t, tree.AddDirectory("/tmp", 0o1777))
	require.NoError(t, tree.AddFile("/etc/a", 0o644, nil))
	archive, err := tree.Tar()
	require.NoError(t, err)
	require.Equal(t, []string{
		"etc/ 0755 0", "etc/a 0644 0", "tmp/ 1777 0", "usr/ 0755 0", "usr/bin/ 0755 0", "usr/bin/b 0755 7",
	}, list(t, archive))
}

func TestTarIgnoresOrderOfAdding(t *testing.T) {
	first, second := &rootfs.Tree{}, &rootfs.Tree{}
	require.NoError(t, errors.Join(first.AddFile("/a", 0o644, []byte("a")), first.AddDirectory("/b", 0o755)))
	require.NoError(t, errors.Join(second.AddDirectory("/b", 0o755), second.AddFile("/a", 0o644, []byte("a"))))
	firstTar, err := first.Tar()
	require.NoError(t, err)
	secondTar, err := second.Tar()
	require.NoError(t, err)
	require.Equal(t, firstTar, secondTar)
}

func TestDuplicatePathIsAnError(t *testing.T) {
	tree := &rootfs.Tree{}
	require.NoError(t, tree.AddFile("/a", 0o644, nil))
	require.ErrorContains(t, tree.AddDirectory("/a", 0o755), `add "/a" to the image: the path exists`)
	require.NoError(t, tree.AddFile("/a/b", 0o644, nil))
	_, err := tree.Tar()
	require.ErrorContains(t, err, `"/a" is a file`)
}

func list(t *testing.T, archive []byte) []string {
	t.Helper()
	var entries []string
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		require.NoError(t, err)
		require.Zero(t, header.ModTime.Unix())
		require.Zero(t, header.Uid+header.Gid)
		entries = append(entries, fmt.Sprintf("%s %04o %d", header.Name, header.Mode, header.Size))
	}
}
