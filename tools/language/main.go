// Command language checks the text of the repository: words to avoid, lines over 100 columns in
// comments and Markdown, and test names over 50 characters. The words are in words.txt.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

const (
	maxColumns  = 100
	maxTestName = 50
)

//go:embed words.txt
var words string

// excluded are generated files, recorded output and the list of words.
var excluded = regexp.MustCompile(`(^|/)testdata/|\.pb\.go$|zz_generated|^charts/akri-crds/templates/|^charts/akri/crds/|^docs/reference/(values|custom-resources)\.md$|package-lock\.json$|^tools/language/`)

func main() {
	fix := flag.Bool("wrap", false, "Wrap long lines instead of checking.")
	flag.Parse()
	problems, err := run(*fix)
	if err != nil {
		fmt.Fprintln(os.Stderr, "language:", err)
		os.Exit(1)
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	if len(problems) > 0 {
		fmt.Printf("%d problems; tools/language/words.txt lists the words, make wrap wraps lines\n", len(problems))
		os.Exit(1)
	}
}

// run returns the problems of all files, or wraps their long lines.
func run(fix bool) (problems []string, err error) {
	set, err := parseRules(words)
	if err != nil {
		return nil, err
	}
	err = eachFile(func(name, content string) error {
		if !fix {
			problems = append(problems, check(set, name, content)...)
			return nil
		}
		wrapped := wrap(name, content)
		if wrapped == content {
			return nil
		}
		return os.WriteFile(name, []byte(wrapped), 0o644)
	})
	return problems, err
}

// eachFile calls handle for each file that git tracks or would track.
func eachFile(handle func(name, content string) error) error {
	output, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "--deduplicate").Output()
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	for name := range strings.FieldsSeq(string(output)) {
		if excluded.MatchString(name) {
			continue
		}
		content, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted and not yet committed
		}
		if err != nil {
			return fmt.Errorf("read file: %w", err)
		}
		if err := handle(name, string(content)); err != nil {
			return err
		}
	}
	return nil
}

// allowed are the name of the original project, which the rules about Akri do not match, and values
// of metric labels, which cannot change.
var allowed = regexp.MustCompile(`(?i)upstream Akri|"heard"`)

type rule struct {
	pattern *regexp.Regexp
	advice  string
}

// ruleSet has the rules, and a pattern of the texts that one of them matches: most texts need only
// this one.
type ruleSet struct {
	rules []rule
	any   *regexp.Regexp
}

func parseRules(text string) (*ruleSet, error) {
	set := &ruleSet{}
	var patterns []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, advice, found := strings.Cut(line, " => ")
		compiled, err := regexp.Compile(asWord(pattern))
		if err != nil || !found {
			return nil, fmt.Errorf("words.txt: %q must be a regular expression, \" => \" and advice: %w", line, err)
		}
		set.rules = append(set.rules, rule{compiled, advice})
		patterns = append(patterns, pattern)
	}
	var err error
	set.any, err = regexp.Compile(asWord(strings.Join(patterns, "|")))
	return set, err
}

func asWord(pattern string) string { return `(?i)(^|[^\w-])(` + pattern + `)($|[^\w-])` }

// problems returns the problems of the words in a text.
func (s *ruleSet) problems(text string) (problems []string) {
	text = allowed.ReplaceAllString(text, "")
	if !s.any.MatchString(text) {
		return nil
	}
	for _, rule := range s.rules {
		if match := rule.pattern.FindStringSubmatch(text); match != nil {
			problems = append(problems, fmt.Sprintf("%q: write %s", match[2], rule.advice))
		}
	}
	return problems
}

// check returns the problems of one file.
func check(set *ruleSet, name, content string) []string {
	var problems []string
	report := func(line int, format string, arguments ...any) {
		problems = append(problems, fmt.Sprintf("%s:%d: %s", name, line, fmt.Sprintf(format, arguments...)))
	}
	for _, piece := range texts(name, content) {
		for _, problem := range set.problems(piece.text) {
			report(piece.line, "%s", problem)
		}
		if piece.columns > maxColumns && !strings.Contains(piece.text, "://") {
			report(piece.line, "%d columns: wrap the line at %d", piece.columns, maxColumns)
		}
		if piece.testName && len(piece.text) > maxTestName {
			report(piece.line, "%s: shorten the name to %d characters, the case goes into a table or a comment", piece.text, maxTestName)
		}
	}
	return problems
}
