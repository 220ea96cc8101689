// Package details decodes the discoveryDetails of Configurations. A package below it for each
// Discovery Handler of this project has the details of that handler: the handler uses them, and the
// webhook validates Configurations with them. These packages are pure.
package details

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// unknownKey matches yaml's message for an unknown key, which contains the name of a Go type.
var unknownKey = regexp.MustCompile(`field (.+) not found in type \S+`)

// Decode decodes details in YAML into a struct with `yaml` tags. Unknown keys, values of a wrong
// type and duplicate keys are errors; the returned error lists all of them with their lines. Empty
// details leave the struct unchanged, so callers can set defaults first.
func Decode(text string, into any) error {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	err := decoder.Decode(into)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("discoveryDetails: %w", readable(err))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("discoveryDetails: must be one YAML document")
	}
	return nil
}

func readable(err error) error {
	typeError, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	errs := make([]error, len(typeError.Errors))
	for i, message := range typeError.Errors {
		errs[i] = errors.New(unknownKey.ReplaceAllString(message, `unknown key "$1"`))
	}
	return errors.Join(errs...)
}
