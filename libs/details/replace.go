package details

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Replace returns the text of details with another string at a path of keys and indices. Comments
// stay, and the string is quoted if necessary. The indentation can change.
func Replace(text, value string, path ...any) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return "", fmt.Errorf("replace a string of the details: %w", readable(err))
	}
	node := at(&document, append([]any{0}, path...))
	if node == nil {
		return "", fmt.Errorf("the details have no string at %v", path)
	}
	*node = yaml.Node{
		Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Style: node.Style & (yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle),
		HeadComment: node.HeadComment, LineComment: node.LineComment, FootComment: node.FootComment,
	}

	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := errors.Join(encoder.Encode(&document), encoder.Close()); err != nil {
		return "", fmt.Errorf("replace a string of the details: %w", err)
	}
	return out.String(), nil
}

// at returns the node at a path, or nil. An index counts the values of a sequence.
func at(node *yaml.Node, path []any) *yaml.Node {
	if len(path) == 0 {
		if node.Kind == yaml.ScalarNode || node.Kind == yaml.AliasNode {
			return node
		}
		return nil
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch step := path[0].(type) {
	case int:
		if node.Kind != yaml.MappingNode && step < len(node.Content) {
			return at(node.Content[step], path[1:])
		}
	case string:
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return at(node.Content[i+1], path[1:])
			}
		}
	}
	return nil
}
