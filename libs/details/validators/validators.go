// Package validators checks the discoveryDetails of Configurations as the Discovery Handlers of
// this project do, without them. What a check costs is limited, because the details can be from an
// attacker.
package validators

import (
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// maxBytes is the size of the largest details that are checked. The values of a YAML document take
// a hundred times the memory of its text, and so do the problems of short values.
const maxBytes = 16 << 10

// ErrNotChecked means that the check could cost too much. The handler checks the details.
var ErrNotChecked = errors.New("discoveryDetails: not checked before the Discovery Handler gets them")

// Validate returns the error with which the handler refuses the details, or one that wraps
// ErrNotChecked. It returns nil for the handlers of others.
func Validate(handler, text string) error {
	parse, known := byHandler[handler]
	switch {
	case !known:
		return nil
	case len(text) > maxBytes:
		return fmt.Errorf("%w: they have more than %d KiB", ErrNotChecked, maxBytes>>10)
	case hasAliases(text): // each repeats a value, which can be large, and its problems
		return fmt.Errorf("%w: they have YAML aliases", ErrNotChecked)
	}
	return parse(text)
}

// hasAliases returns false for a text that is not YAML, which no handler accepts.
func hasAliases(text string) bool {
	var document yaml.Node
	return yaml.Unmarshal([]byte(text), &document) == nil && isOrHasAlias(&document)
}

func isOrHasAlias(node *yaml.Node) bool {
	return node.Kind == yaml.AliasNode || slices.ContainsFunc(node.Content, isOrHasAlias)
}

// errorOf returns a function that returns only the error of parse.
func errorOf[T any](parse func(text string) (T, error)) func(text string) error {
	return func(text string) error {
		_, err := parse(text)
		return err
	}
}
