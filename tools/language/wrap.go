package main

import (
	"regexp"
	"slices"
	"strings"
)

var (
	goComment     = regexp.MustCompile(`^(\s*// )([^\s+#].*)$`)
	listItem      = regexp.MustCompile(`^(\s*)([-*] |\d+\. )?`)
	notAParagraph = regexp.MustCompile(`^(\||#|<|    |\s*$)`)
	nextBlock     = regexp.MustCompile(`^(\s*([-*] |\d+\. )|#|\||\s*$|\s*` + "```" + `)`)
)

// wrap rewraps the blocks of a Go file or a Markdown file that have a line over maxColumns.
func wrap(name, content string) string {
	lines := strings.Split(content, "\n")
	switch {
	case isGenerated(content):
	case strings.HasSuffix(name, ".go"):
		lines = wrapGo(lines)
	case strings.HasSuffix(name, ".md"):
		lines = wrapMarkdown(lines)
	}
	return strings.Join(lines, "\n")
}

// wrapGo rewraps consecutive comment lines with the same indentation.
func wrapGo(lines []string) []string {
	var out []string
	for len(lines) > 0 {
		match := goComment.FindStringSubmatch(lines[0])
		if match == nil {
			out, lines = append(out, lines[0]), lines[1:]
			continue
		}
		length := 1
		for length < len(lines) {
			next := goComment.FindStringSubmatch(lines[length])
			if next == nil || next[1] != match[1] || strings.HasPrefix(next[2], "- ") {
				break
			}
			length++
		}
		out = append(out, wrapBlock(lines[:length], match[1], match[1])...)
		lines = lines[length:]
	}
	return out
}

// wrapMarkdown rewraps paragraphs and list items outside code blocks and tables.
func wrapMarkdown(lines []string) []string {
	var out []string
	inCode := false
	for len(lines) > 0 {
		isFence := strings.HasPrefix(strings.TrimSpace(lines[0]), "```")
		if isFence {
			inCode = !inCode
		}
		if isFence || inCode || notAParagraph.MatchString(lines[0]) {
			out, lines = append(out, lines[0]), lines[1:]
			continue
		}
		length := 1
		for length < len(lines) && !nextBlock.MatchString(lines[length]) {
			length++
		}
		item := listItem.FindString(lines[0])
		out = append(out, wrapBlock(lines[:length], item, strings.Repeat(" ", len(item)))...)
		lines = lines[length:]
	}
	return out
}

// wrapBlock returns the lines unchanged if all are short enough. The prefixes of the first line and
// of the others are not text.
func wrapBlock(lines []string, first, rest string) []string {
	if !slices.ContainsFunc(lines, func(line string) bool { return width(line) > maxColumns }) {
		return lines
	}
	words := strings.Fields(strings.TrimPrefix(lines[0], first))
	for _, line := range lines[1:] {
		words = append(words, strings.Fields(strings.TrimPrefix(line, rest))...)
	}
	var out []string
	current := first + words[0]
	for _, word := range words[1:] {
		longer := current + " " + word
		if width(longer) > maxColumns {
			out = append(out, current)
			longer = rest + word
		}
		current = longer
	}
	return append(out, current)
}
