package charts

import (
	"fmt"

	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// crds adds the CRDs of both charts. controller-gen has written those of akri-crds, without the
// removed fields: Go types cannot declare a field without having it.
func (s Sources) crds(files map[string][]byte) error {
	for _, name := range []string{"configurations.yaml", "instances.yaml"} {
		text, err := s.read(crds + name)
		if err != nil {
			return err
		}
		if name == "configurations.yaml" {
			if text, err = withRemovedFields(text); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		files[crds+name], files[crdCopies+name] = text, text
	}
	return nil
}

// removedRule fails unless the stored object has the field already. Without it, no update of such
// an object would be possible, not even of its status.
const removedRule = "oldSelf.hasValue()"

// withRemovedFields declares the removed fields in the CRD of Configurations.
func withRemovedFields(text []byte) ([]byte, error) {
	crd := map[string]any{}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	fields, err := specFields(crd)
	if err != nil {
		return nil, err
	}
	for name, removed := range akriv0.RemovedFields {
		schema := map[string]any{
			"description": "Removed. Use " + removed.Today + ".",
			"type":        removed.Type,
			"x-kubernetes-validations": []any{map[string]any{
				"rule": removedRule, "optionalOldSelf": true, "message": removed.Message(), "reason": "FieldValueForbidden",
			}},
		}
		switch removed.Type {
		case "object":
			schema["x-kubernetes-preserve-unknown-fields"] = true
		case "array":
			schema["items"] = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		}
		fields[name] = schema
	}
	text, err = yaml.Marshal(crd)
	return append([]byte("---\n"), text...), err
}

// specFields returns the properties of the spec.
func specFields(crd map[string]any) (map[string]any, error) {
	node := crd
	for _, name := range []string{"spec", "versions", "schema", "openAPIV3Schema", "properties", "spec", "properties"} {
		child := node[name]
		if list, ok := child.([]any); ok && len(list) == 1 {
			child = list[0]
		}
		object, ok := child.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("no %s", name)
		}
		node = object
	}
	return node, nil
}
