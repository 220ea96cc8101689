package print

import (
	"fmt"
	"io"
	"time"

	"akri.sh/libs/inspect/explain"
	"akri.sh/tools/kubectl-akri/check"
)

var marks = map[explain.State]string{
	explain.OK: "OK", explain.Partial: "PARTLY", explain.Broken: "BROKEN", explain.Pending: "pending", explain.Skipped: "-",
}

// Explanation writes the chain, the cause of the first broken link, and what is wrong in addition.
func Explanation(w io.Writer, e explain.Explanation) {
	fmt.Fprintf(w, "%s %s/%s\n\n", e.Kind, e.Namespace, e.Name)
	broken := e.Broken()
	var rows [][]string
	for i := range e.Links {
		link := &e.Links[i]
		mark := marks[link.State]
		if link == broken {
			mark = "BROKEN >"
		}
		rows = append(rows, []string{"  " + mark, link.Name, clip(link.Message)})
	}
	table(w, rows...)
	if broken != nil {
		for i, cause := range broken.Causes {
			title := "Cause"
			if i > 0 {
				title = "Also"
			}
			writeCause(w, title, cause)
		}
	}
	for i := range e.Links {
		if link := &e.Links[i]; link != broken {
			for _, cause := range link.Causes {
				writeCause(w, "Also", cause)
			}
		}
	}
	if broken == nil {
		fmt.Fprintf(w, "\nNo link is broken.\n")
	}
}

// maxMessage is the number of characters of a link's message. Causes have the whole message.
const maxMessage = 100

func clip(message string) string {
	if characters := []rune(message); len(characters) > maxMessage {
		return string(characters[:maxMessage]) + "…"
	}
	return message
}

func writeCause(w io.Writer, title string, cause explain.Cause) {
	fmt.Fprintf(w, "\n%s: %s: %s\n", title, cause.ID, cause.Message)
	for _, device := range cause.Evidence {
		fmt.Fprintf(w, "  closest: %s\n", device)
	}
	if wait := cause.Wait; wait != nil {
		fmt.Fprintf(w, "  at %s: %s, unless %s\n", wait.Until.UTC().Format(time.RFC3339), wait.Then, wait.Awaited)
	}
	Remedies(w, cause.Remedies)
}

// Remedies writes what to do, with the commands on lines of their own.
func Remedies(w io.Writer, remedies []explain.Remedy) {
	for _, remedy := range remedies {
		fmt.Fprintf(w, "  %s\n", remedy.Text)
		if remedy.Command != "" {
			fmt.Fprintf(w, "    %s\n", remedy.Command)
		}
	}
}

// Checks writes one line for each check, and what to do about those that have not passed.
func Checks(w io.Writer, results []check.Result) {
	var rows [][]string
	for _, result := range results {
		rows = append(rows, []string{string(result.Outcome), result.Name, clip(result.Message)})
	}
	table(w, rows...)
	for _, result := range results {
		if result.Outcome != check.Passed {
			fmt.Fprintf(w, "\n%s: %s: %s\n", result.Outcome, result.Name, result.Message)
			Remedies(w, result.Remedies)
		}
	}
}
