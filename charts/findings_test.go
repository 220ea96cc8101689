package charts_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFindings checks that the tests in the table of findings of docs/security.md exist. Names that
// do not begin with Test or Fuzz are scenarios: functions of integration/e2e.
func TestFindings(t *testing.T) {
	_, table, found := strings.Cut(read(t, "docs/security.md"), "\n## Findings\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	tests := testSources(t, root)
	scenarios := testSources(t, filepath.Join(root, "integration", "e2e"))
	numbers := map[int]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|.*\| ([^|]*) \|$`).FindAllStringSubmatch(table, -1) {
		number, err := strconv.Atoi(row[1])
		require.NoError(t, err)
		numbers[number] = true
		names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1)
		require.NotEmpty(t, names, "%s: no test", row[0])
		for _, name := range names {
			sources := scenarios
			if strings.HasPrefix(name[1], "Test") || strings.HasPrefix(name[1], "Fuzz") {
				sources = tests
			}
			require.True(t, strings.Contains(sources, "\nfunc "+name[1]+"("), "no test %s for the finding %s", name[1], row[0])
		}
	}
	for number := range 12 {
		require.True(t, numbers[number+1], "finding %d", number+1)
	}
}

// testSources returns the text of all tests in a directory.
func testSources(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		text.Write(content)
		return err
	}))
	return text.String()
}
