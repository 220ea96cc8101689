package v0_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// TestEachReasonIsDocumented compares the constants with Reasons, and with the sections of
// docs/troubleshooting.md.
func TestEachReasonIsDocumented(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "conditions.go", nil, 0)
	require.NoError(t, err)
	var reasons []string
	ast.Inspect(file, func(node ast.Node) bool {
		constant, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(constant.Names[0].Name, "Reason") {
			return true
		}
		if literal, ok := constant.Values[0].(*ast.BasicLit); ok { // not the list of all
			reason, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			reasons = append(reasons, reason)
		}
		return true
	})
	text, err := os.ReadFile("../../../../docs/troubleshooting.md")
	require.NoError(t, err)
	var sections []string
	for _, match := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(text), -1) {
		sections = append(sections, match[1])
	}
	require.NotEmpty(t, reasons)
	require.Equal(t, reasons, akriv0.Reasons)
	require.Equal(t, reasons, sections)
}
