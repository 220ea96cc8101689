package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	schemaTimeout = 3 * time.Second
	// schemaMaxAge is the time after which an upgrade of the API server is noticed.
	schemaMaxAge = 5 * time.Minute
	// schemaRetry is the time after which a document is read again that could not be read.
	schemaRetry = 10 * time.Second
)

// ClusterSchema reads the OpenAPI v3 documents of the API server. It keeps the names of the fields
// of a document, so that a Configuration with many unknown fields reads it once.
type ClusterSchema struct {
	rest rest.Interface

	mu        sync.Mutex
	documents map[string]document
}

// document has the names of the fields of each type, or the error of the last request.
type document struct {
	fields map[string]map[string]struct{}
	err    error
	until  time.Time
}

// NewClusterSchema returns a ClusterSchema. The client must accept absolute paths.
func NewClusterSchema(client rest.Interface) *ClusterSchema {
	return &ClusterSchema{rest: client, documents: map[string]document{}}
}

// HasField implements Schema.
func (s *ClusterSchema) HasField(ctx context.Context, parent reflect.Type, name string) (bool, error) {
	d := s.document(ctx, documentPath(parent))
	_, ok := d.fields[schemaName(parent)][name]
	return ok, d.err
}

// document returns a document that is not too old. Concurrent calls wait for one request.
func (s *ClusterSchema) document(ctx context.Context, path string) document {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.documents[path]; ok && time.Now().Before(d.until) {
		return d
	}
	// A review that ends early must not make the request fail for the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), schemaTimeout)
	defer cancel()
	fields, err := s.read(ctx, path)
	d := document{fields, err, time.Now().Add(schemaMaxAge)}
	if err != nil {
		d.until = time.Now().Add(schemaRetry)
	}
	s.documents[path] = d
	return d
}

func (s *ClusterSchema) read(ctx context.Context, path string) (map[string]map[string]struct{}, error) {
	text, err := s.rest.Get().AbsPath(path).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("get schema: %w", err)
	}
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{} `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("decode schema: %w", err)
	}
	fields := map[string]map[string]struct{}{}
	for name, schema := range document.Components.Schemas {
		fields[name] = schema.Properties
	}
	return fields, nil
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
