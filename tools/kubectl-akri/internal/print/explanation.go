package print

import (
	"fmt"
	"io"
	"time"

	"akri.sh/libs/inspect/explain"
	"akri.sh/tools/kubectl-akri/check"
)

// Explanation writes the verdicts, the chain, the cause of the decisive link, and what is wrong in
// addition.
func Explanation(w io.Writer, e explain.Explanation) {
	fmt.Fprintf(w, "%s %s/%s\n", e.Kind, e.Namespace, e.Name)
	var rows [][]string
	for _, verdict := range e.Verdicts {
		rows = append(rows, []string{verdict.Subject.Kind + ":", verdict.State.Word(), clip(verdict.Message)})
	}
	table(w, rows...)
	fmt.Fprintln(w)

	decisive := e.Decisive()
	rows = nil
	for i := range e.Links {
		link := &e.Links[i]
		mark := link.State.Word()
		if link == decisive {
			mark += " >"
		}
		rows = append(rows, []string{"  " + mark, link.Name, clip(link.Message)})
	}
	table(w, rows...)
	writeCauses(w, e, decisive)
	for _, link := range e.Links {
		if link.Wait != nil {
			writeWait(w, link)
		}
	}
}

func writeCauses(w io.Writer, e explain.Explanation, decisive *explain.Link) {
	if decisive != nil {
		for i, cause := range decisive.Causes {
			title := "Cause"
			if i > 0 {
				title = "Also"
			}
			writeCause(w, title, cause)
		}
	}
	for i := range e.Links {
		if link := &e.Links[i]; link != decisive {
			for _, cause := range link.Causes {
				writeCause(w, "Also", cause)
			}
		}
	}
}

// writeWait writes what a link waits for.
func writeWait(w io.Writer, link explain.Link) {
	fmt.Fprintf(w, "\n%s: waits for %s since %s", link.Name, link.Wait.Awaited, link.Wait.Since.UTC().Format(time.RFC3339))
	if !link.Wait.Until.IsZero() {
		fmt.Fprintf(w, "; at %s %s", link.Wait.Until.UTC().Format(time.RFC3339), link.Wait.Then)
	}
	fmt.Fprintln(w)
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
	for _, fact := range cause.Evidence {
		fmt.Fprintf(w, "  %s\n", fact)
	}
	closest(w, "  ", cause.Closest)
	if wait := cause.Wait; wait != nil {
		fmt.Fprintf(w, "  at %s: %s, unless %s\n", wait.Until.UTC().Format(time.RFC3339), wait.Then, wait.Awaited)
	}
	Remedies(w, cause.Remedies)
}

// Remedies writes what to do, with the commands, and what they interrupt, on lines of their own.
func Remedies(w io.Writer, remedies []explain.Remedy) {
	for _, remedy := range remedies {
		fmt.Fprintf(w, "  %s\n", remedy.Text)
		if remedy.Command != "" {
			fmt.Fprintf(w, "    %s\n", remedy.Command)
		}
		for _, object := range remedy.Interrupted() {
			fmt.Fprintf(w, "    interrupts %s\n", object)
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
