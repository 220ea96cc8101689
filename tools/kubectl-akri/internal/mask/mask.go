// Package mask removes secrets from API objects and logs, so that they can be given to others.
package mask

import (
	"regexp"
	"slices"
	"strings"
)

// Masked replaces a secret.
const Masked = "MASKED"

// minimum is the length from which a secret is removed from texts. Shorter ones would remove parts
// of other words.
const minimum = 4

// Masker removes secrets from objects, and remembers them to remove them from texts.
type Masker struct {
	secrets []string
}

var (
	// secretName matches the names of variables and fields that hold secrets.
	secretName = regexp.MustCompile(`(?i)(passw(or)?d|passphrase|token|secret|credential|api[_-]?key|private[_-]?key|auth)`)
	// ownVariable matches the environment variables that the chart sets. They hold no secrets.
	ownVariable = regexp.MustCompile(`^(AKRI_|AGENT_|GO|DISCOVERY_HANDLERS?_|POD_)`)

	patterns = []*regexp.Regexp{
		regexp.MustCompile(`(?i)(\bbearer\s+)[\w.~+/=-]+`),
		regexp.MustCompile(`()\beyJ[\w-]+\.[\w-]+\.[\w-]*`), // a JSON Web Token
		regexp.MustCompile(`(\w://)[^/\s"'@]+@`),            // the user in a URL
		regexp.MustCompile(`(?i)(\b[\w-]*(?:passw(?:or)?d|passphrase|token|api[_-]?key)["']?\s*[:=]\s*)(?:"[^"]*"|'[^']*'|[^\s,;&"'{}]+)`),
		regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?-----END [A-Z ]*PRIVATE KEY-----`),
	}
)

// Object masks the secrets in an object of decoded JSON, and returns it. These values are masked:
// those of discoveryProperties, brokerProperties and environment variables, and those of fields
// with the name of a secret. Annotations of kubectl and managedFields, which repeat them, are
// removed.
func (m *Masker) Object(object any) any {
	switch object := object.(type) {
	case map[string]any:
		for name, value := range object {
			object[name] = m.field(name, value)
		}
		delete(object, "managedFields")
		if annotations, ok := object["annotations"].(map[string]any); ok {
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		}
	case []any:
		for i := range object {
			object[i] = m.Object(object[i])
		}
	case string:
		return patternsOnly(object)
	}
	return object
}

// field masks one field of an object.
func (m *Masker) field(name string, value any) any {
	switch name {
	case "discoveryProperties":
		m.named(value, func(string) bool { return true })
	case "env":
		m.named(value, func(variable string) bool { return !ownVariable.MatchString(variable) })
	case "brokerProperties":
		if properties, ok := value.(map[string]any); ok {
			for property, text := range properties {
				properties[property] = m.value(property, text)
			}
		}
	default:
		if text, isText := value.(string); isText && secretName.MatchString(name) && !strings.HasSuffix(name, "Name") {
			return m.value(name, text)
		}
		return m.Object(value)
	}
	return value
}

// named masks the values in a list of names and values.
func (m *Masker) named(list any, isSecret func(name string) bool) {
	items, ok := list.([]any)
	if !ok {
		return
	}
	for _, item := range items {
		entry, ok := item.(map[string]any)
		if !ok {
			continue
		}
		name, _ := entry["name"].(string)
		if value, has := entry["value"]; has && isSecret(name) {
			entry["value"] = m.value(name, value)
		}
	}
}

// value masks a value, and remembers it if its name is that of a secret.
func (m *Masker) value(name string, value any) any {
	text, ok := value.(string)
	if !ok || text == "" {
		return value
	}
	if secretName.MatchString(name) && len(text) >= minimum && !slices.Contains(m.secrets, text) {
		m.secrets = append(m.secrets, text)
	}
	return Masked
}

// Text masks the secrets of all objects that were masked before, and what looks like a secret.
func (m *Masker) Text(text string) string {
	// A secret can contain another one.
	secrets := slices.SortedFunc(slices.Values(m.secrets), func(a, b string) int { return len(b) - len(a) })
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, Masked)
		// As a string in a log line.
		if quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(secret); quoted != secret {
			text = strings.ReplaceAll(text, quoted, Masked)
		}
	}
	return patternsOnly(text)
}

func patternsOnly(text string) string {
	for _, pattern := range patterns {
		replacement := "${1}" + Masked
		if strings.HasSuffix(pattern.String(), "@") {
			replacement += "@"
		}
		text = pattern.ReplaceAllString(text, replacement)
	}
	return text
}
