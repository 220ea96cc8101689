package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestCheckMarkdown(t *testing.T) {
	const navigation = "[a](a.md)\n"
	for name, c := range map[string]struct{ page, want string }{
		"page":               {"[x](../README.md)", ""},
		"missing page":       {"# A\n\n[x](b.md)", "docs/a.md:3: b.md: does not exist"},
		"heading":            {"[x](../README.md#two-words-and-code)", ""},
		"missing heading":    {"[x](../README.md#three)", "docs/a.md:1: ../README.md#three: has no such heading"},
		"repeated heading":   {"# A\n\n# A\n\n[x](#a-1)", ""},
		"own heading":        {"# A\n\n[x](#b)", "docs/a.md:3: #b: has no such heading"},
		"file":               {"[x](../main.go)", ""},
		"directory":          {"[x](../docs)", ""},
		"directory heading":  {"[x](..#two-words-and-code)", ""},
		"missing directory":  {"[x](../bin)", "docs/a.md:1: ../bin: does not exist"},
		"in a table":         {"| a |\n|---|\n| [x](b.md) |", "docs/a.md:3: b.md: does not exist"},
		"in code":            {"```\n[x](b.md)\n```", ""},
		"image":              {"![x](b.png)", "docs/a.md:1: b.png: does not exist"},
		"other site":         {"[x](https://example.com/b.md)", ""},
		"image elsewhere":    {"![x](https://example.com/b.png)", "docs/a.md:1: https://example.com/b.png: loads a file of another site"},
		"own address":        {"[x](" + repository + "README.md#two-words-and-code)", ""},
		"broken own address": {"[x](" + repository + "b.md)", "docs/a.md:1: " + repository + "b.md: does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			got := checkMarkdown(map[string]string{
				"README.md": "# Two words, and `code`\n", "main.go": "", "docs/README.md": navigation, "docs/a.md": c.page,
			})
			if strings.Join(got, "\n") != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestNavigationIsComplete(t *testing.T) {
	got := checkMarkdown(map[string]string{"docs/README.md": "", "docs/a/b.md": ""})
	if want := "docs/README.md: docs/a/b.md is not in the navigation"; strings.Join(got, "\n") != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestCheckSite(t *testing.T) {
	for name, c := range map[string]struct{ page, want string }{
		"page":            {`<a href="b/c.html#d">`, ""},
		"missing page":    {`<a href="d.html">`, "a.html:0: d.html: does not exist"},
		"missing heading": {`<a href="b/c.html#e">`, "a.html:0: b/c.html#e: has no such heading"},
		"other site":      {`<a href="https://example.com">`, ""},
		"font elsewhere":  {`<link href="https://example.com/font.css">`, "a.html:0: https://example.com/font.css: loads a file of another site"},
		"missing script":  {`<script src="a.js"></script>`, "a.html:0: a.js: does not exist"},
		"icon":            {`<link href="data:,">`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := checkSite(fstest.MapFS{
				"a.html":   {Data: []byte(c.page)},
				"b/c.html": {Data: []byte(`<h2 id="d">D</h2><a href="../a.html">`)},
			})
			if err != nil {
				t.Fatal(err)
			}
			if strings.Join(got, "\n") != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
	if _, err := checkSite(fstest.MapFS{}); err == nil {
		t.Fatal("an empty site has no problem")
	}
}
