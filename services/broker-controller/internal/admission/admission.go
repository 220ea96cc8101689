// Package admission says whether a Configuration may be what it is about to become. It looks at
// specs alone, and never at a Configuration that is going: nothing here can hold up a deletion, a
// finalizer or a status.
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/strict"
)

// Schema knows the cluster's own API, which may be newer than what this program was built with.
type Schema interface {
	// Has says whether the type has the field. It is asked only about fields that this program does
	// not know.
	Has(ctx context.Context, of reflect.Type, name string) (bool, error)
}

// Reviewer judges Configurations.
type Reviewer struct{ Schema Schema }

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
		// An old object that cannot be read cannot be equal.
		if old, err := decodeObject(request.OldObject); leaving(object) || err == nil && reflect.DeepEqual(old["spec"], object["spec"]) {
			return allowed
		}
	}
	problems, warnings := r.check(ctx, request.Name, object)
	if len(problems) > 0 {
		return refused(request, problems)
	}
	allowed.Warnings = warnings
	return allowed
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

// leaving says whether the object is being deleted: it may change only so that it can go.
func leaving(object map[string]any) bool {
	metadata, ok := object["metadata"].(map[string]any)
	return ok && metadata["deletionTimestamp"] != nil
}

func (r Reviewer) check(ctx context.Context, name string, object map[string]any) (field.ErrorList, []string) {
	path := field.NewPath("spec")
	var spec akriv0.ConfigurationSpec
	found := strict.Decode(path, object["spec"], &spec)
	problems, warnings := found.Problems, []string(nil)
	for _, unknown := range found.Unknown {
		problem, warning := r.unknown(ctx, unknown)
		if problem != nil {
			problems = append(problems, problem)
		}
		if warning != "" {
			warnings = append(warnings, warning)
		}
	}
	c := &checker{}
	c.name(name)
	c.spec(path, &spec)
	return firstOfEach(append(problems, c.problems...)), append(warnings, c.warnings...)
}

// firstOfEach keeps one problem of each path: what could not be read has no meaning to be judged.
func firstOfEach(problems field.ErrorList) (first field.ErrorList) {
	seen := map[string]bool{}
	for _, problem := range problems {
		if !seen[problem.Field] {
			seen[problem.Field] = true
			first = append(first, problem)
		}
	}
	return first
}

// unknown tells a mistake from a field that the cluster has learnt since this program was built.
// Akri leaves such a field out of what it makes, which the user must know.
func (r Reviewer) unknown(ctx context.Context, unknown strict.Unknown) (*field.Error, string) {
	if strings.HasPrefix(unknown.Type.PkgPath(), akriv0.Group) {
		return field.Forbidden(unknown.Path, "unknown field"), ""
	}
	newer, err := r.Schema.Has(ctx, unknown.Type, unknown.Name)
	switch {
	case err != nil:
		return nil, fmt.Sprintf("%s: unknown field, left out; the cluster's schema could not be read: %v", unknown.Path, err)
	case newer:
		return nil, fmt.Sprintf("%s: newer than this version of Akri, which leaves it out", unknown.Path)
	}
	return field.Forbidden(unknown.Path, "unknown field"), ""
}

func refused(request *admissionv1.AdmissionRequest, problems field.ErrorList) *admissionv1.AdmissionResponse {
	details := &metav1.StatusDetails{Group: request.Kind.Group, Kind: request.Kind.Kind, Name: request.Name}
	lines := make([]string, 0, len(problems))
	for _, problem := range problems {
		lines = append(lines, problem.Error())
		details.Causes = append(details.Causes, metav1.StatusCause{
			Type: metav1.CauseType(problem.Type), Message: problem.ErrorBody(), Field: problem.Field,
		})
	}
	return &admissionv1.AdmissionResponse{UID: request.UID, Result: &metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
		Message: strings.Join(lines, "; "), Details: details,
	}}
}
