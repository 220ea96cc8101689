package charts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const crdIntroduction = `# Custom resources

<!-- Generated from the CustomResourceDefinitions by make charts. -->

The API group is ` + "`akri.sh`, the version `v0`" + `. The [glossary](../glossary.md) defines the terms.
`

// A fieldSchema is the part of an OpenAPI schema that the reference shows.
type fieldSchema struct {
	Type, Description, Pattern  string
	Default                     any
	Enum                        []any
	Minimum, Maximum            *float64
	MinLength, MaxLength        *int64
	MinItems, MaxItems          *int64
	Required                    []string
	Properties                  map[string]fieldSchema
	Items, AdditionalProperties *fieldSchema
	Validations                 []struct{ Message string } `json:"x-kubernetes-validations"`
}

// crdPage returns the page with the fields of the custom resources.
func crdPage(files map[string][]byte) ([]byte, error) {
	var page strings.Builder
	page.WriteString(crdIntroduction)
	for _, name := range []string{"configurations.yaml", "instances.yaml"} {
		var crd struct {
			Spec struct {
				Names struct {
					Kind       string
					ShortNames []string
				}
				Versions []struct {
					Schema struct{ OpenAPIV3Schema fieldSchema }
				}
			}
		}
		if err := yaml.Unmarshal(files[crds+name], &crd); err != nil {
			return nil, fmt.Errorf("decode %s: %w", name, err)
		}
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		fmt.Fprintf(&page, "\n## %s\n\n%s The short name is `%s`.\n", crd.Spec.Names.Kind, paragraph(schema.Description), crd.Spec.Names.ShortNames[0])
		page.WriteString("\n| Field | Type | Default | Meaning |\n|---|---|---|---|\n")
		for _, part := range []string{"spec", "status"} {
			writeFields(&page, part, schema.Properties[part])
		}
	}
	return []byte(page.String()), nil
}

// writeFields writes a row for a field and for each one below it.
func writeFields(page *strings.Builder, name string, schema fieldSchema) {
	fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", name, schema.kind(), code(schema.byDefault()), cell(schema.meaning()))
	nested, prefix := schema, name+"."
	if schema.Items != nil {
		nested, prefix = *schema.Items, name+"[]."
	} else if schema.AdditionalProperties != nil {
		nested, prefix = *schema.AdditionalProperties, name+".*."
	}
	for _, property := range slices.Sorted(maps.Keys(nested.Properties)) {
		field := nested.Properties[property]
		if slices.Contains(nested.Required, property) {
			field.Description = strings.TrimSpace("Required. " + field.Description)
		}
		writeFields(page, prefix+property, field)
	}
}

// kind returns the type as in kubectl explain: []string, map[string]string.
func (s fieldSchema) kind() string {
	switch {
	case s.Items != nil:
		return "[]" + s.Items.kind()
	case s.AdditionalProperties != nil:
		return "map[string]" + s.AdditionalProperties.kind()
	default:
		return s.Type
	}
}

func (s fieldSchema) byDefault() string {
	if s.Default == nil {
		return ""
	}
	return fmt.Sprint(s.Default)
}

// meaning returns the description and the limits.
func (s fieldSchema) meaning() string {
	parts := []string{paragraph(s.Description)}
	add := func(format string, arguments ...any) { parts = append(parts, fmt.Sprintf(format, arguments...)) }
	for _, limits := range []fieldSchema{s, s.element()} {
		if limits.Minimum != nil {
			add("Minimum %v.", *limits.Minimum)
		}
		if limits.Maximum != nil {
			add("Maximum %v.", *limits.Maximum)
		}
		if limits.MinLength != nil {
			add("Minimum length %d.", *limits.MinLength)
		}
		if limits.MaxLength != nil {
			add("Maximum length %d.", *limits.MaxLength)
		}
		if limits.MinItems != nil {
			add("Minimum entries %d.", *limits.MinItems)
		}
		if limits.MaxItems != nil {
			add("Maximum entries %d.", *limits.MaxItems)
		}
		if limits.Pattern != "" {
			add("Pattern: `%s`.", limits.Pattern)
		}
		if len(limits.Enum) > 0 {
			add("One of %v.", limits.Enum)
		}
		for _, validation := range limits.Validations {
			add("Rule: %s.", validation.Message)
		}
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

// element returns the schema of the elements of a list or a map.
func (s fieldSchema) element() fieldSchema {
	if s.Items != nil {
		return *s.Items
	}
	if s.AdditionalProperties != nil {
		return *s.AdditionalProperties
	}
	return fieldSchema{}
}

func paragraph(text string) string { return strings.Join(strings.Fields(text), " ") }
