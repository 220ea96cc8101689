package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
	"golang.org/x/net/html"
)

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM))

// parseMarkdown returns the links and the anchors of headings, which are those of GitHub.
func parseMarkdown(content string) page {
	p := page{anchors: map[string]bool{}}
	source := []byte(content)
	line := 1
	_ = ast.Walk(markdown.Parser().Parse(text.NewReader(source)), func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		if node.Type() == ast.TypeBlock && node.Lines().Len() > 0 {
			line = 1 + strings.Count(content[:node.Lines().At(0).Start], "\n")
		}
		switch n := node.(type) {
		case *ast.Heading:
			p.addAnchor(slug(plain(n, source)))
		case *ast.Link:
			p.links = append(p.links, link{line: line, target: string(n.Destination)})
		case *ast.Image:
			p.links = append(p.links, link{line: line, target: string(n.Destination), loaded: true})
		}
		return ast.WalkContinue, nil
	})
	return p
}

// addAnchor adds an anchor. A repeated one gets a number.
func (p page) addAnchor(anchor string) {
	unique := anchor
	for i := 1; p.anchors[unique]; i++ {
		unique = fmt.Sprintf("%s-%d", anchor, i)
	}
	p.anchors[unique] = true
}

// plain returns the text of a node without its markup.
func plain(node ast.Node, source []byte) string {
	var b strings.Builder
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		if t, ok := child.(*ast.Text); ok {
			b.Write(t.Segment.Value(source))
		}
		b.WriteString(plain(child, source))
	}
	return b.String()
}

func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// loading are the elements that load a file, with the attribute that names it.
var loading = map[string]string{"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}

// parseHTML returns the links and the ids of elements.
func parseHTML(content string) (page, error) {
	p := page{anchors: map[string]bool{}}
	root, err := html.Parse(strings.NewReader(content))
	if err != nil {
		return p, err
	}
	for node := range root.Descendants() {
		for _, attribute := range node.Attr {
			switch {
			case attribute.Key == "id":
				p.anchors[attribute.Val] = true
			case node.Data == "a" && attribute.Key == "href", attribute.Key == loading[node.Data]:
				p.links = append(p.links, link{target: attribute.Val, loaded: node.Data != "a"})
			}
		}
	}
	return p, nil
}
