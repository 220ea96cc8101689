// Package broker has what the brokers of this repository have in common: the properties of their
// device, and a server with TLS and a token.
package broker

import (
	"regexp"
	"slices"
	"strings"
)

// suffix is that of the digest of an Instance in the name of a variable.
var suffix = regexp.MustCompile(`^_[0-9A-F]{6}(X[0-9A-F]{6})?$`)

// Property returns a property of the device of this Pod from its environment, such as os.Environ().
// Akri sets each property as NAME, and as NAME_<digest of the Instance>, which upstream's brokers
// read. It returns "" if there is none, and the first in the order of names if there are several
// devices.
func Property(environ []string, name string) string {
	var suffixed []string
	for _, variable := range environ {
		key, value, _ := strings.Cut(variable, "=")
		rest, found := strings.CutPrefix(key, name)
		switch {
		case !found || value == "":
		case rest == "":
			return value
		case suffix.MatchString(rest):
			suffixed = append(suffixed, variable)
		}
	}
	if len(suffixed) == 0 {
		return ""
	}
	_, value, _ := strings.Cut(slices.Min(suffixed), "=")
	return value
}

// Getenv returns a function that reads the environment: the named variables as Property does, and
// all others only as the spec of the Pod sets them. Nodes choose the properties of devices, so a
// property does not set where a password is sent, or whether clients need a token.
func Getenv(environ []string, properties ...string) func(name string) string {
	return func(name string) string {
		if slices.Contains(properties, name) {
			return Property(environ, name)
		}
		return setting(environ, name)
	}
}

// setting returns a variable unless a device has set it: its NAME_<digest> has the same value then.
func setting(environ []string, name string) (value string) {
	byDevice := map[string]bool{}
	for _, variable := range environ {
		key, text, _ := strings.Cut(variable, "=")
		rest, found := strings.CutPrefix(key, name)
		switch {
		case found && rest == "":
			value = text
		case found && suffix.MatchString(rest):
			byDevice[text] = true
		}
	}
	if byDevice[value] {
		return ""
	}
	return value
}
