package main

import (
	"go/scanner"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// piece is one line of text, or part of one.
type piece struct {
	line int
	text string
	// columns is the width of the whole line if its width is limited.
	columns  int
	testName bool
}

// texts returns the text of a file by its kind, and nothing for kinds that are not checked.
func texts(name, content string) []piece {
	switch base := filepath.Base(name); {
	case strings.HasSuffix(base, ".go"):
		return goTexts(content)
	case strings.HasSuffix(base, ".md"):
		return markdownTexts(content)
	case base == "Makefile" || base == "run" || regexp.MustCompile(`\.(proto|ya?ml|tpl|txt|sh|toml|cjs|js|json)$`).MatchString(base):
		return lineTexts(content)
	}
	return nil
}

// goTexts returns comments, strings and identifiers.
func goTexts(content string) []piece {
	if isGenerated(content) {
		return nil
	}
	var pieces []piece
	var scan scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(content))
	scan.Init(file, []byte(content), nil, scanner.ScanComments)
	lines := strings.Split(content, "\n")
	var previous token.Token
	for {
		position, kind, literal := scan.Scan()
		if kind == token.EOF {
			return pieces
		}
		line := file.Line(position)
		switch kind {
		case token.COMMENT, token.STRING:
			for i, text := range strings.Split(literal, "\n") {
				pieces = append(pieces, piece{line: line + i, text: text, columns: commentColumns(kind, lines[line+i-1])})
			}
		case token.IDENT:
			isTest := previous == token.FUNC && strings.HasPrefix(literal, "Test")
			pieces = append(pieces, piece{line: line, text: literal, testName: isTest})
		}
		previous = kind
	}
}

func isGenerated(content string) bool {
	return strings.Contains("\n"+content, "\n// Code generated ")
}

// commentColumns returns the width of a line that is only a comment, and 0 for other lines and for
// directives.
func commentColumns(kind token.Token, line string) int {
	text := strings.TrimSpace(line)
	if kind != token.COMMENT || !strings.HasPrefix(text, "// ") || strings.HasPrefix(text, "// +") || strings.HasPrefix(text, "// #") {
		return 0
	}
	return width(line)
}

var codeSpan = regexp.MustCompile("`[^`]*`")

// markdownTexts returns the lines outside code blocks, without code spans. Tables have no width.
func markdownTexts(content string) []piece {
	var pieces []piece
	inCode := false
	for i, line := range strings.Split(content, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
			continue
		}
		if inCode {
			continue
		}
		columns := width(line)
		isLink := strings.Contains(line, "](") && !strings.Contains(strings.TrimSpace(line), " ") // keeps its URL on one line
		if isLink || strings.HasPrefix(line, "|") {
			columns = 0
		}
		pieces = append(pieces, piece{line: i + 1, text: codeSpan.ReplaceAllString(line, "`"), columns: columns})
	}
	return pieces
}

func lineTexts(content string) []piece {
	var pieces []piece
	for i, line := range strings.Split(content, "\n") {
		pieces = append(pieces, piece{line: i + 1, text: line})
	}
	return pieces
}

// width counts a tab as four columns.
func width(line string) int {
	return utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
}
