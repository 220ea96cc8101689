package handler

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// unknownKey is how yaml says it, with the name of a Go type that means nothing to the person who wrote the details.
var unknownKey = regexp.MustCompile(`field (.+) not found in type \S+`)

// DecodeDetails reads the YAML of the request into a struct with `yaml` tags. Every key that the struct does not have,
// every value of a wrong type and every key that occurs twice is refused, all at once and each with its line; the error
// is marked Invalid. Empty details leave the struct as it is, so that defaults may be set before.
func DecodeDetails(request Request, into any) error {
	decoder := yaml.NewDecoder(strings.NewReader(request.Details))
	decoder.KnownFields(true)
	err := decoder.Decode(into)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return Invalid(fmt.Errorf("discoveryDetails: %w", readable(err)))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Invalid(errors.New("discoveryDetails: more than one YAML document"))
	}
	return nil
}

func readable(err error) error {
	var several *yaml.TypeError
	if !errors.As(err, &several) {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	problems := make([]error, len(several.Errors))
	for i, problem := range several.Errors {
		problems[i] = errors.New(unknownKey.ReplaceAllString(problem, `unknown key "$1"`))
	}
	return errors.Join(problems...)
}
