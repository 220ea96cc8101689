package main

import (
	"strings"
	"testing"
)

func TestWrap(t *testing.T) {
	words := func(n int) string { return strings.TrimSpace(strings.Repeat("word ", n)) }
	for name, c := range map[string]struct{ file, content, want string }{
		"Go comment":      {"a.go", "\t// " + words(21) + "\n\t// last\nx\n", "\t// " + words(18) + "\n\t// " + words(3) + " last\nx\n"},
		"short comment":   {"a.go", "// one\n// two\n", "// one\n// two\n"},
		"directive":       {"a.go", "// +kubebuilder " + words(30) + "\n", "// +kubebuilder " + words(30) + "\n"},
		"code in comment": {"a.go", "//\t" + words(30) + "\n", "//\t" + words(30) + "\n"},
		"list item":       {"a.md", "- " + words(21) + "\n  last\n- next\n", "- " + words(19) + "\n  " + words(2) + " last\n- next\n"},
		"paragraph":       {"a.md", words(21) + "\nlast\n\nnext\n", words(20) + "\nword last\n\nnext\n"},
		"code block":      {"a.md", "```\n" + words(30) + "\n```\n", "```\n" + words(30) + "\n```\n"},
		"table":           {"a.md", "| " + words(30) + " |\n", "| " + words(30) + " |\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wrap(c.file, c.content); got != c.want {
				t.Fatalf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}
