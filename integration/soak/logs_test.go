package soak

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLogReader(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "akri-system_registrar-1_uid", "registrar")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, "0.log")
	logs := &logReader{dir: t.TempDir(), offsets: map[string]int64{}}
	read := func(text string) (found []string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, logs.readFile(path, func(_, line string) { found = append(found, line) }))
		return found
	}
	first, second := "2026-11-22T14:00:00Z stderr F panic: first\n", "2026-11-22T14:00:01Z stderr F panic: second\n"
	require.Equal(t, []string{"panic: first"}, read(first+second[:20]))
	require.Equal(t, []string{"panic: second"}, read(first+second))
	require.Equal(t, []string{"panic: first"}, read(first), "a file that was rotated")
	require.NoError(t, os.Remove(path))
	require.NoError(t, logs.readFile(path, nil), "a container that was replaced")
	copied, err := os.ReadFile(filepath.Join(logs.dir, "registrar-1_registrar.log"))
	require.NoError(t, err)
	require.Equal(t, first+second+first, string(copied))
}
