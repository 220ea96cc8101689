// Command links checks the links of the repository's Markdown files, and with a directory as
// argument those of the site in it. A link must lead to a file in git, or to a heading of a page.
// Links to other sites are not followed.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// repository is the address of the files on the main branch.
const repository = "https://github.com/akri-mesh/akri/blob/main/"

// A page has anchors, and links to others.
type page struct {
	anchors map[string]bool
	links   []link
}

type link struct {
	line   int // 0 in HTML
	target string
	// loaded is true if a browser loads the target with the page, such as an image or a script.
	loaded bool
}

func main() {
	problems, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "links:", err)
		os.Exit(1)
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

func run(sites []string) ([]string, error) {
	problems, err := checkRepository()
	for _, site := range sites {
		if err != nil {
			return nil, err
		}
		var more []string
		more, err = checkSite(os.DirFS(site))
		problems = append(problems, more...)
	}
	return problems, err
}

// checkRepository checks the files that git tracks or would track in the current directory.
func checkRepository() ([]string, error) {
	output, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "--deduplicate").Output()
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	files := map[string]string{}
	for name := range strings.FieldsSeq(string(output)) {
		content, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) { // deleted and not yet committed
			return nil, fmt.Errorf("read file: %w", err)
		}
		if err == nil {
			files[name] = string(content)
		}
	}
	return checkMarkdown(files), nil
}

// checkMarkdown checks the Markdown files among the files, and that docs/README.md, the navigation
// of the site, lists all of docs.
func checkMarkdown(files map[string]string) []string {
	exists := map[string]bool{".": true}
	pages := map[string]page{}
	for name, content := range files {
		for ; name != "."; name = path.Dir(name) {
			exists[name] = true
			if strings.HasSuffix(name, ".md") {
				pages[name] = parseMarkdown(content)
			}
		}
	}
	problems := check(pages, exists, "README.md")
	linked := map[string]bool{}
	for _, l := range pages["docs/README.md"].links {
		linked[path.Join("docs", l.target)] = true
	}
	for name := range pages {
		if strings.HasPrefix(name, "docs/") && name != "docs/README.md" && !linked[name] {
			problems = append(problems, fmt.Sprintf("docs/README.md: %s is not in the navigation", name))
		}
	}
	slices.Sort(problems)
	return problems
}

// checkSite checks the HTML files. They may load only files of the site.
func checkSite(site fs.FS) ([]string, error) {
	exists := map[string]bool{}
	pages := map[string]page{}
	err := fs.WalkDir(site, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		exists[name] = true
		if filepath.Ext(name) != ".html" {
			return nil
		}
		content, err := fs.ReadFile(site, name)
		if err != nil {
			return err
		}
		pages[name], err = parseHTML(string(content))
		return err
	})
	if err == nil && len(pages) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("read site: %w", err)
	}
	problems := check(pages, exists, "index.html")
	slices.Sort(problems)
	return problems, nil
}

// check returns the links that lead nowhere. The anchors of a directory are those of its index.
func check(pages map[string]page, exists map[string]bool, index string) []string {
	var problems []string
	for name, p := range pages {
		for _, l := range p.links {
			if problem := broken(name, l, pages, exists, index); problem != "" {
				problems = append(problems, fmt.Sprintf("%s:%d: %s: %s", name, l.line, l.target, problem))
			}
		}
	}
	return problems
}

// broken returns the problem of a link of the page with the name, or an empty string.
func broken(name string, l link, pages map[string]page, exists map[string]bool, index string) string {
	target, anchor, hasAnchor := strings.Cut(l.target, "#")
	switch {
	case strings.HasPrefix(target, repository) && index == "README.md":
		target = strings.TrimPrefix(target, repository)
	case strings.Contains(target, ":"):
		if l.loaded && !strings.HasPrefix(target, "data:") {
			return "loads a file of another site"
		}
		return ""
	case target == "":
		target = name
	default:
		target = path.Join(path.Dir(name), target)
	}
	if !exists[target] {
		return "does not exist"
	}
	if _, isPage := pages[target]; !isPage {
		target = path.Join(target, index)
	}
	if hasAnchor && !pages[target].anchors[anchor] {
		return "has no such heading"
	}
	return ""
}
