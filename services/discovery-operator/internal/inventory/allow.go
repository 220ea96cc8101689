package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"akri.sh/libs/catalog"
)

// AllowLists are settings of the allow lists of handlers, by the name of the handler. A list that
// is nil is that of the handler's declaration: handlers of others have none.
type AllowLists map[string]catalog.Allow

// UnmarshalText reads a JSON object. It makes AllowLists a flag. An empty text has no lists, as for
// other flags.
func (l *AllowLists) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // a wrong key must not allow everything
	if err := decoder.Decode((*map[string]catalog.Allow)(l)); err != nil {
		return fmt.Errorf("decode the allow lists: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode the allow lists: must be one JSON object")
	}
	return nil
}

// of returns the allow list of a handler.
func (l AllowLists) of(handler string) catalog.Allow {
	declared, _ := catalog.Find(handler)
	allow := declared.Allow
	if set := l[handler]; set.DeviceClasses != nil {
		allow.DeviceClasses = set.DeviceClasses
	}
	if set := l[handler]; set.PropertyPrefixes != nil {
		allow.PropertyPrefixes = set.PropertyPrefixes
	}
	return allow
}

// checkName returns a function that checks the names of the properties of a list. The author of the
// Configuration allows names by writing them into the details, as udev's `properties` do: the
// handler cannot choose these.
func (l AllowLists) checkName(list List) func(name string) error {
	prefixes := l.of(list.Handler).PropertyPrefixes
	if isEverything(prefixes) {
		return func(string) error { return nil }
	}
	named := map[string]bool{}
	for _, word := range strings.FieldsFunc(list.Details, endsName) {
		named[word] = true
	}
	return func(name string) error {
		if named[name] || slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			return nil
		}
		return notListed(list.Handler, "properties", "whose names begin with", prefixes, "propertyPrefixes")
	}
}

// endsName returns whether the name of an environment variable cannot contain the character.
func endsName(r rune) bool {
	return !strings.ContainsRune("-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", r)
}

// checkClass returns why the handler must not offer the device node. The error follows the path in
// a sentence. A link has no class, so that a list cannot contain it.
func (l AllowLists) checkClass(handler, path string, nodes DeviceNodes) error {
	classes := l.of(handler).DeviceClasses
	if isEverything(classes) {
		return nil
	}
	class, err := nodes.Class(path)
	if err == nil {
		if slices.Contains(classes, class) {
			return nil
		}
		err = fmt.Errorf("whose class is %q", class)
	}
	return fmt.Errorf("%w; %w", err, notListed(handler, "device nodes", "of the classes", classes, "deviceClasses"))
}

func isEverything(list []string) bool {
	return list == nil || slices.Contains(list, catalog.Everything)
}

// notListed names the setting that replaces a list.
func notListed(handler, items, condition string, list []string, key string) error {
	allowed := "no " + items
	if len(list) > 0 {
		allowed = fmt.Sprintf("only %s %s %s", items, condition, strings.Join(list, ", "))
	}
	return fmt.Errorf("handlers named %.100q may send %s; if containers may use it, allow it with --allow-from-handlers "+
		"(chart value global.allowFromHandlers.%.100s.%s)", handler, allowed, handler, key)
}
