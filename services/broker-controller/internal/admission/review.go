// Package admission validates Configurations when they are created or their specs change, also
// while they are being deleted. It always allows deletions and changes of finalizers and of the
// status.
package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Schema is the schema of the cluster's API, which can be newer than the compiled API types.
type Schema interface {
	// HasField reports whether a Kubernetes API type has a field in the cluster.
	HasField(ctx context.Context, parent reflect.Type, name string) (bool, error)
}

// Reviewer reviews Configurations.
type Reviewer struct {
	Schema Schema
	// DenyInvalidDetails refuses discoveryDetails that the Discovery Handler of this project with
	// the name refuses. Otherwise they cause warnings: a handler of others can have the name.
	DenyInvalidDetails bool
}

// Review answers one request of the API server.
func (r Reviewer) Review(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	allowed := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	if request.SubResource != "" || request.Operation != admissionv1.Create && request.Operation != admissionv1.Update {
		return allowed
	}
	object, err := decodeObject(request.Object)
	if err != nil {
		return refused(request, field.ErrorList{field.Invalid(field.NewPath("object"), field.OmitValueType{}, err.Error())})
	}
	if request.Operation == admissionv1.Update {
		// An old object that cannot be decoded counts as different.
		if old, err := decodeObject(request.OldObject); err == nil && reflect.DeepEqual(old["spec"], object["spec"]) {
			return allowed
		}
	}
	errs, warnings := r.validate(ctx, request.Name, object)
	if len(errs) > 0 {
		return refused(request, errs)
	}
	allowed.Warnings = warnings
	return allowed
}

// Problems returns the problems for which Review refuses a Configuration in JSON.
func (r Reviewer) Problems(ctx context.Context, configuration []byte) (field.ErrorList, error) {
	object, err := decodeObject(runtime.RawExtension{Raw: configuration})
	if err != nil {
		return nil, err
	}
	name, _, err := unstructured.NestedString(object, "metadata", "name")
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	errs, _ := r.validate(ctx, name, object)
	return errs, nil
}

func messages(errs field.ErrorList) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

func decodeObject(raw runtime.RawExtension) (map[string]any, error) {
	var object map[string]any
	decoder := json.NewDecoder(bytes.NewReader(raw.Raw))
	decoder.UseNumber()
	if len(raw.Raw) > 0 {
		if err := decoder.Decode(&object); err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
	}
	if object == nil {
		return nil, fmt.Errorf("AdmissionRequest object contains no data")
	}
	return object, nil
}

func (r Reviewer) validate(
	ctx context.Context, name string, object map[string]any,
) (field.ErrorList, []string) {
	path, spec := field.NewPath("spec"), &akriv0.ConfigurationSpec{}
	var d decoder
	d.decode(path, object["spec"], reflect.ValueOf(spec).Elem())
	errs, warnings := d.errs, []string(nil)
	for _, unknown := range d.unknown {
		err, warning := r.checkUnknown(ctx, unknown)
		if err != nil {
			errs.add(err)
		}
		if warning != "" && len(warnings) < maxProblems {
			warnings = append(warnings, warning)
		}
	}
	v := &validator{denyDetails: r.DenyInvalidDetails}
	v.name(name)
	v.spec(path, name, spec)
	all := firstPerField(append(errs.first, v.errs.first...))
	if omitted := errs.omitted + v.errs.omitted; omitted > 0 {
		all = append(all, field.Invalid(path, field.OmitValueType{}, fmt.Sprintf("has %d more problems", omitted)))
	}
	return all, append(warnings, v.warnings...)
}

// firstPerField returns the first error of each field. The validator sees the zero value of fields
// that could not be decoded, so its errors for them are meaningless.
func firstPerField(errs field.ErrorList) (first field.ErrorList) {
	seen := map[string]bool{}
	for _, err := range errs {
		if !seen[err.Field] {
			seen[err.Field] = true
			first = append(first, err)
		}
	}
	return first
}

// checkUnknown returns an error for a field that the cluster does not have either. For a newer
// field it returns a warning, because Akri ignores the field.
func (r Reviewer) checkUnknown(ctx context.Context, unknown unknownField) (*field.Error, string) {
	if strings.HasPrefix(unknown.parent.PkgPath(), akriv0.Group) {
		return field.Forbidden(unknown.path, unknownMessage(unknown)), ""
	}
	exists, err := r.Schema.HasField(ctx, unknown.parent, unknown.name)
	switch {
	case err != nil:
		return nil, fmt.Sprintf("%s: unknown field, ignored; the cluster's schema cannot be read: %v", unknown.path, err)
	case exists:
		return nil, fmt.Sprintf("%s: ignored: newer than this version of Akri", unknown.path)
	}
	return field.Forbidden(unknown.path, "unknown field"), ""
}

// unknownMessage describes an unknown field of Akri's types. An object that was stored before the
// CRD refused removed fields can have one.
func unknownMessage(unknown unknownField) string {
	if removed, ok := akriv0.RemovedFields[unknown.name]; ok && unknown.parent == reflect.TypeFor[akriv0.ConfigurationSpec]() {
		return removed.Message()
	}
	return "unknown field"
}

func refused(request *admissionv1.AdmissionRequest, errs field.ErrorList) *admissionv1.AdmissionResponse {
	details := &metav1.StatusDetails{Group: request.Kind.Group, Kind: request.Kind.Kind, Name: request.Name}
	for _, err := range errs {
		details.Causes = append(details.Causes, metav1.StatusCause{
			Type: metav1.CauseType(err.Type), Message: err.ErrorBody(), Field: err.Field,
		})
	}
	return &admissionv1.AdmissionResponse{UID: request.UID, Result: &metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
		Message: strings.Join(messages(errs), "; "), Details: details,
	}}
}
