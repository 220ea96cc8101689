package handler

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

// DecodeDetails decodes the YAML details of the request into a struct with `yaml` tags. Unknown
// keys, values of a wrong type and duplicate keys are errors; the returned error lists all of them
// with their lines and is marked Invalid. Empty details leave the struct unchanged, so callers can
// set defaults first.
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
		return Invalid(errors.New("discoveryDetails: must be one YAML document"))
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
