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

// ClusterSchema reads the OpenAPI v3 documents of the API server. It does not cache them, because
// unknown fields are rare.
type ClusterSchema struct {
	// REST must accept absolute paths.
	REST rest.Interface
}

// HasField implements Schema.
func (s ClusterSchema) HasField(ctx context.Context, parent reflect.Type, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	text, err := s.REST.Get().AbsPath(documentPath(parent)).Do(ctx).Raw()
	if err != nil {
		return false, fmt.Errorf("get schema: %w", err)
	}
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]json.RawMessage `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return false, fmt.Errorf("decode schema: %w", err)
	}
	_, ok := document.Components.Schemas[schemaName(parent)].Properties[name]
	return ok, nil
}

// documentPath returns the path of the document with the schema of a Kubernetes API type.
func documentPath(apiType reflect.Type) string {
	if groupVersion, ok := strings.CutPrefix(apiType.PkgPath(), "k8s.io/api/"); ok && !strings.HasPrefix(groupVersion, "core/") {
		return "/openapi/v3/apis/" + groupVersion
	}
	return "/openapi/v3/api/v1"
}

// schemaName returns, for example, io.k8s.api.core.v1.Container for k8s.io/api/core/v1.Container.
func schemaName(apiType reflect.Type) string {
	path := strings.TrimPrefix(apiType.PkgPath(), "k8s.io/")
	return "io.k8s." + strings.ReplaceAll(path, "/", ".") + "." + apiType.Name()
}
