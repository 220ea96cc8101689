package charts

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	valuesReference = "docs/reference/values.md"
	crdReference    = "docs/reference/custom-resources.md"
)

const valuesIntroduction = `# Chart values

<!-- Generated from values.yaml of the charts by make charts. -->

An unknown value is an error. [charts/README.md](../../charts/README.md) describes common tasks.
Values of a service are set below its name: ` + "`registrar.logLevel`" + `.
`

// A value is a row of a table of values.
type value struct{ path, byDefault, description string }

// valuesPage returns the page with the values of all charts. Values that all services have with the
// same default are listed once.
func (s Sources) valuesPage() ([]byte, error) {
	var page strings.Builder
	page.WriteString(valuesIntroduction)
	umbrellaValues, err := s.values(umbrella)
	if err != nil {
		return nil, err
	}
	writeValues(&page, "The chart akri", umbrellaValues)

	services := map[string][]value{}
	charts := map[value]int{}
	for _, service := range s.services() {
		values, err := s.values(umbrella + "/charts/" + service)
		if err != nil {
			return nil, err
		}
		services[service] = values
		for _, v := range values {
			charts[v.ofService(service)]++
		}
	}
	shared := func(name string) func(value) bool {
		return func(v value) bool { return charts[v.ofService(name)] == len(services) }
	}
	for i, name := range slices.Sorted(maps.Keys(services)) {
		if i == 0 {
			var common []value
			for _, v := range services[name] {
				if shared(name)(v) {
					common = append(common, v.ofService(name))
				}
			}
			writeValues(&page, "Every service", common)
		}
		writeValues(&page, name, slices.DeleteFunc(services[name], shared(name)))
	}
	return []byte(page.String()), nil
}

// ofService returns the value with a placeholder instead of the name of its service.
func (v value) ofService(name string) value {
	v.description = strings.ReplaceAll(v.description, "/"+name+".", "/<service>.")
	return v
}

func (s Sources) values(chart string) ([]value, error) {
	text, err := s.read(path.Join(chart, "values.yaml"))
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("decode values of %s: %w", chart, err)
	}
	if len(document.Content) == 0 {
		return nil, nil
	}
	return flatten("", document.Content[0])
}

// flatten returns the values of a mapping. A mapping has a row of its own if it has a comment.
func flatten(prefix string, mapping *yaml.Node) ([]value, error) {
	var values []value
	for i := 0; i < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		name, comment := prefix+key.Value, commentOf(key, node)
		if node.Kind == yaml.MappingNode && node.Style&yaml.FlowStyle == 0 {
			if comment != "" {
				values = append(values, value{name, "", comment})
			}
			nested, err := flatten(name+".", node)
			if err != nil {
				return nil, err
			}
			values = append(values, nested...)
			continue
		}
		text, err := inline(node)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		values = append(values, value{name, text, comment})
	}
	return values, nil
}

// commentOf returns the last paragraph of the comment in front of a value, and that behind it. An
// earlier paragraph is about a group of values.
func commentOf(key, node *yaml.Node) string {
	_, last, found := cutLast(key.HeadComment, "\n\n")
	if !found {
		last = key.HeadComment
	}
	var words []string
	for line := range strings.Lines(last + "\n" + key.LineComment + "\n" + node.LineComment) {
		words = append(words, strings.Fields(strings.TrimPrefix(line, "#"))...)
	}
	return strings.Join(words, " ")
}

func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

// inline returns a value in one line of YAML, without comments.
func inline(node *yaml.Node) (string, error) {
	var plain func(node *yaml.Node) *yaml.Node
	plain = func(node *yaml.Node) *yaml.Node {
		copied := &yaml.Node{Kind: node.Kind, Tag: node.Tag, Value: node.Value, Style: node.Style}
		if node.Kind != yaml.ScalarNode {
			copied.Style = yaml.FlowStyle
		}
		for _, child := range node.Content {
			copied.Content = append(copied.Content, plain(child))
		}
		return copied
	}
	text, err := yaml.Marshal(plain(node))
	return strings.Join(strings.Fields(string(text)), " "), err
}

func writeValues(page *strings.Builder, heading string, values []value) {
	fmt.Fprintf(page, "\n## %s\n\n| Value | Default | Meaning |\n|---|---|---|\n", heading)
	for _, v := range values {
		fmt.Fprintf(page, "| `%s` | %s | %s |\n", v.path, code(v.byDefault), cell(v.description))
	}
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}

// cell escapes text for a cell of a table. In code, only the separator of cells is special.
func cell(text string) string {
	parts := strings.Split(strings.ReplaceAll(text, "|", `\|`), "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.ReplaceAll(parts[i], "<", "&lt;")
	}
	return strings.Join(parts, "`")
}
