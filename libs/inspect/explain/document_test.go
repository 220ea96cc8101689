package explain_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/inspect/explain"
)

// documented returns the causes with what they mean, from the comments of the constants.
func documented(t *testing.T) map[explain.CauseID]string {
	t.Helper()
	files, err := filepath.Glob("cause_*.go")
	require.NoError(t, err)
	causes := map[explain.CauseID]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, declaration := range parsed.Decls {
			if constant, ok := declaration.(*ast.GenDecl); ok && constant.Tok == token.CONST && constant.Doc != nil {
				name := constant.Specs[0].(*ast.ValueSpec).Names[0].Name
				text := strings.Join(strings.Fields(constant.Doc.Text()), " ")
				if meaning, is := strings.CutPrefix(text, name+" means that "); is {
					meaning, _, _ = strings.Cut(strings.TrimSuffix(meaning, "."), ". No rule finds it")
					causes[explain.CauseID(name)] = meaning
				}
			}
		}
	}
	return causes
}

// TestCausesAreDocumented compares the table of docs/kubectl-akri.md with the comments of the
// constants, or writes it with -update.
func TestCausesAreDocumented(t *testing.T) {
	const (
		page  = "../../../docs/kubectl-akri.md"
		begin = "| Cause | Meaning |\n|---|---|\n"
	)
	causes := documented(t)
	var table strings.Builder
	for _, id := range slices.Sorted(maps.Keys(causes)) {
		fmt.Fprintf(&table, "| `%s` | %s |\n", id, causes[id])
	}

	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, after, found := strings.Cut(string(text), begin)
	require.True(t, found)
	_, after, found = strings.Cut(after, "\n\n")
	require.True(t, found)
	want := before + begin + table.String() + "\n" + after
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(text), "go test -update writes the table")
}
