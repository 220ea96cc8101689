// Package print renders results as text, JSON or YAML.
package print

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Formats of -o.
const (
	Text = ""
	Wide = "wide"
	JSON = "json"
	YAML = "yaml"
)

// Escaped returns a writer for terminals. The names and messages of objects are text of handlers
// and nodes, and of users with other rights than those of the user who reads them.
func Escaped(w io.Writer) io.Writer { return escapedWriter{w} }

type escapedWriter struct{ io.Writer }

// Write writes the text without what could control a terminal. Each call has whole characters.
func (w escapedWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, akriv0.Escape(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Value writes the value as JSON or YAML, or calls text for the other formats.
func Value(w io.Writer, format string, value any, text func(w io.Writer, wide bool)) error {
	switch format {
	case Text, Wide:
		text(w, format == Wide)
		return nil
	case JSON:
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	case YAML:
		encoded, err := yaml.Marshal(value)
		if err == nil {
			_, err = w.Write(encoded)
		}
		return err
	default:
		return fmt.Errorf("output format %q is unknown: use json, yaml or wide", format)
	}
}

// table writes rows with aligned columns.
func table(w io.Writer, rows ...[]string) {
	aligned := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(aligned, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	_ = aligned.Flush()
}

func age(since time.Time, now time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(since))
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
