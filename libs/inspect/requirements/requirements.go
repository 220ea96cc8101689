// Package requirements finds out which objects of a cluster the services of Akri lack: it compares
// the types that the cluster serves with those of this program, and looks for objects that an
// installation needs. Every user may read the OpenAPI documents that describe the types.
package requirements

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

var groupPath = "/apis/" + akriv0.GroupVersion.String()

// usedType is a type that this program uses. Services write the status of Configurations through
// its subresource.
type usedType struct {
	resource, kind string
	object         reflect.Type
	subresource    bool
}

var types = []usedType{
	{akriv0.ConfigurationResource.Resource, "Configuration", reflect.TypeFor[akriv0.Configuration](), true},
	{akriv0.InstanceResource.Resource, "Instance", reflect.TypeFor[akriv0.Instance](), false},
}

// Reader reads the types and objects of a cluster. It downloads the schemas of types again only if
// they have changed. Several goroutines can use it.
type Reader struct {
	client rest.Interface

	mu  sync.Mutex
	url string // of the schemas, with their hash; empty if they are to be read again
	// lacks are the fields that the schemas lack, by resource.
	lacks map[string][]string
}

// NewReader returns a Reader that sends requests with the client of any group.
func NewReader(client rest.Interface) *Reader { return &Reader{client: client} }

// Unmet returns what is missing of the needed objects, and which CustomResourceDefinitions are
// missing or lack what this program uses. It skips what the user may not read.
func (r *Reader) Unmet(ctx context.Context, needed []akriv0.Subject) ([]explain.Requirement, error) {
	unmet, err := r.definitions(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("read the types of the cluster: %w", err)
	}

	for _, object := range needed {
		path := []string{"/api/v1/namespaces", object.Namespace, strings.ToLower(object.Kind) + "s", object.Name}
		missing, err := Missing(ctx, r.client, path...)
		if err != nil {
			return nil, fmt.Errorf("read %s %s/%s: %w", object.Kind, object.Namespace, object.Name, err)
		}
		if missing {
			unmet = append(unmet, explain.Requirement{Subject: object, Missing: true})
		}
	}
	return unmet, nil
}

// Resources returns how Pods get devices, as the cluster has decided it and recorded in the
// namespace. It is empty if there is no record, or if the user may not read it.
func (r *Reader) Resources(ctx context.Context, namespace string) (string, error) {
	if namespace == "" {
		return "", nil
	}
	var record struct{ Data map[string]string }
	err := r.get(ctx, "/api/v1/namespaces/"+namespace+"/configmaps/"+akriv0.ResourcesConfigMap, &record)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return "", nil
	}
	return record.Data[akriv0.ResourcesKey], err
}

// metadata is the media type of an object without its content: a Secret has no data then.
const metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"

// Missing reports whether the object at the path does not exist. One that the user may not read is
// not missing.
func Missing(ctx context.Context, client rest.Interface, path ...string) (bool, error) {
	err := client.Get().AbsPath(path...).SetHeader("Accept", metadata).Do(ctx).Error()
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil
	default:
		return false, err
	}
}

// definitions returns the CustomResourceDefinitions that are missing or lack something.
func (r *Reader) definitions(ctx context.Context) ([]explain.Requirement, error) {
	exist, err := r.resources(ctx)
	if err == nil {
		err = r.readSchemas(ctx)
	}
	if err != nil {
		return nil, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	var unmet []explain.Requirement
	for _, t := range types {
		name := akriv0.Subject{Kind: explain.SubjectDefinition, Name: t.resource + "." + akriv0.Group}
		definition := explain.Requirement{Subject: name, Missing: !exist[t.resource]}
		if !definition.Missing {
			definition.Lacks = r.lacks[t.resource]
		}
		if definition.Missing || len(definition.Lacks) > 0 {
			unmet = append(unmet, definition)
		}
	}
	return unmet, nil
}

// resources returns the resources of Akri that the API server serves. Those of a new
// CustomResourceDefinition are served before their schema is published.
func (r *Reader) resources(ctx context.Context) (map[string]bool, error) {
	var list metav1.APIResourceList
	if err := r.get(ctx, groupPath, &list); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	exist := map[string]bool{}
	for _, resource := range list.APIResources {
		exist[resource.Name] = true
	}
	return exist, nil
}

// readSchemas reads the schemas that the API server publishes now, if it does.
func (r *Reader) readSchemas(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := r.get(ctx, "/openapi/v3", &index); err != nil {
		return err
	}
	location := index.Paths[strings.TrimPrefix(groupPath, "/")].ServerRelativeURL
	if location != "" && location == r.url {
		return nil
	}

	content, served := []byte("{}"), document{}
	if location != "" {
		var err error
		if content, err = r.read(ctx, location); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(content, &served); err != nil {
		return fmt.Errorf("%s: %w", location, err)
	}

	// The index can be older than the schemas, for about a second. The API server redirects
	// requests for former schemas to the present ones. These have another hash, and are read again
	// next time.
	r.url, r.lacks = "", map[string][]string{}
	for _, t := range types {
		r.lacks[t.resource] = served.lacks(t)
	}
	if strings.HasSuffix(location, fmt.Sprintf("hash=%X", sha512.Sum512(content))) {
		r.url = location
	}
	return nil
}

func (r *Reader) get(ctx context.Context, location string, into any) error {
	content, err := r.read(ctx, location)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", location, err)
	}
	return nil
}

func (r *Reader) read(ctx context.Context, location string) ([]byte, error) {
	parsed, err := url.Parse(location)
	if err != nil {
		return nil, err
	}
	request := r.client.Get().AbsPath(parsed.Path).SetHeader("Accept", "application/json")
	for name, values := range parsed.Query() {
		request = request.Param(name, values[0])
	}
	return request.DoRaw(ctx)
}

// document is the part of an OpenAPI document that is compared.
type document struct {
	Paths      map[string]struct{} `json:"paths"`
	Components struct {
		Schemas map[string]*node `json:"schemas"`
	} `json:"components"`
}

// node is a schema.
type node struct {
	Type       string           `json:"type"`
	Properties map[string]*node `json:"properties"`
	Items      *node            `json:"items"`
	Preserve   bool             `json:"x-kubernetes-preserve-unknown-fields"`
	Kinds      []struct {
		Kind string `json:"kind"`
	} `json:"x-kubernetes-group-version-kind"`
}

func (d *document) find(kind string) *node {
	for _, schema := range d.Components.Schemas {
		if len(schema.Kinds) == 1 && schema.Kinds[0].Kind == kind {
			return schema
		}
	}
	return nil
}

// lacks returns the fields of the spec and the status that are missing or have another type. It
// returns none if the schema is not published.
func (d *document) lacks(t usedType) []string {
	served := d.find(t.kind)
	if served == nil {
		return nil
	}
	var lacks []string
	for _, part := range []string{"Spec", "Status"} {
		field, _ := t.object.FieldByName(part)
		name := strings.ToLower(part)
		lacks = append(lacks, compare(field.Type, served.Properties[name], name)...)
	}
	_, exists := d.Paths[groupPath+"/namespaces/{namespace}/"+t.resource+"/{name}/status"]
	if t.subresource && !exists {
		lacks = append(lacks, "the subresource status")
	}
	return lacks
}

// jsonTypes are the types in JSON of the kinds that the types of Akri use.
var jsonTypes = map[reflect.Kind]string{
	reflect.String: "string", reflect.Bool: "boolean", reflect.Int32: "integer", reflect.Int64: "integer",
	reflect.Slice: "array", reflect.Map: "object", reflect.Struct: "object",
}

// compare returns the fields of the type that the schema lacks.
func compare(t reflect.Type, served *node, path string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch expected := jsonTypes[t.Kind()]; {
	case served == nil:
		return []string{path}
	case served.Preserve, reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()):
		return nil // any content, or a type of Kubernetes with a form of its own, such as a time
	case served.Type != expected:
		return []string{fmt.Sprintf("%s (%s instead of %s)", path, served.Type, expected)}
	}

	switch t.Kind() {
	case reflect.Slice:
		return compare(t.Elem(), served.Items, path+"[]")
	case reflect.Struct:
	default:
		return nil
	}
	var lacks []string
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		lacks = append(lacks, compare(field.Type, served.Properties[name], path+"."+name)...)
	}
	return lacks
}
