package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

const schemaTimeout = 3 * time.Second

// ClusterSchema reads what the API server publishes of its API. It keeps nothing: unknown fields
// are rare.
type ClusterSchema struct {
	// REST reaches the API server; paths are absolute.
	REST rest.Interface
}

// Has implements Schema.
func (s ClusterSchema) Has(ctx context.Context, of reflect.Type, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	text, err := s.REST.Get().AbsPath(document(of)).Do(ctx).Raw()
	if err != nil {
		return false, fmt.Errorf("get schema: %w", err)
	}
	var published struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]json.RawMessage `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &published); err != nil {
		return false, fmt.Errorf("decode schema: %w", err)
	}
	_, there := published.Components.Schemas[schemaName(of)].Properties[name]
	return there, nil
}

// document holds the schema of the type, and those of all types within it.
func document(of reflect.Type) string {
	if group, ok := strings.CutPrefix(of.PkgPath(), "k8s.io/api/"); ok && !strings.HasPrefix(group, "core/") {
		return "/openapi/v3/apis/" + group
	}
	return "/openapi/v3/api/v1"
}

// schemaName of k8s.io/api/core/v1.Container is io.k8s.api.core.v1.Container.
func schemaName(of reflect.Type) string {
	path := strings.TrimPrefix(of.PkgPath(), "k8s.io/")
	return "io.k8s." + strings.ReplaceAll(path, "/", ".") + "." + of.Name()
}
