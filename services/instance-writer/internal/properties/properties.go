// Package properties resolves the discoveryProperties of Configurations and watches the Secrets and
// ConfigMaps that they refer to.
package properties

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// MaxBytes limits the values of one Configuration, which are sent in one message.
const MaxBytes = 1 << 20

// Ref identifies an object that properties refer to.
type Ref struct{ Kind, Namespace, Name string }

// String returns for example `Secret default/camera`.
func (r Ref) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

// The kinds of a Ref.
const (
	secretKind    = "Secret"
	configMapKind = "ConfigMap"
)

// source returns the object and the key that a property refers to. It returns false if the property
// has a value of its own.
func source(namespace string, property akriv0.DiscoveryProperty) (Ref, *akriv0.KeyRef, bool) {
	from := property.ValueFrom
	switch {
	case property.Value != nil, from == nil:
		return Ref{}, nil, false
	case from.SecretKeyRef != nil:
		return refOf(secretKind, namespace, from.SecretKeyRef), from.SecretKeyRef, true
	case from.ConfigMapKeyRef != nil:
		return refOf(configMapKind, namespace, from.ConfigMapKeyRef), from.ConfigMapKeyRef, true
	default:
		return Ref{}, nil, false
	}
}

func refOf(kind, namespace string, key *akriv0.KeyRef) Ref {
	return Ref{kind, cmp.Or(key.Namespace, namespace), key.Name}
}

// Refs adds the objects that the properties refer to. namespace is that of their Configuration.
func Refs(refs map[Ref]struct{}, namespace string, properties []akriv0.DiscoveryProperty) {
	for _, property := range properties {
		if ref, _, exists := source(namespace, property); exists {
			refs[ref] = struct{}{}
		}
	}
}

// Get returns the data of an object. It returns ErrUnread, ErrNotFound, a ForbiddenError or the
// reason why the object cannot be read.
type Get func(Ref) (map[string][]byte, error)

// Resolve returns the values of properties, or the problems if there are any. It returns ErrUnread
// if an object has not been read yet.
func Resolve(
	get Get, namespace string, properties []akriv0.DiscoveryProperty,
) (map[string]*configurationv1.PropertyValue, []*instancev1.Problem, error) {
	values, size := map[string]*configurationv1.PropertyValue{}, 0
	var missing failures
	for _, property := range properties {
		value, err := resolve(get, namespace, property)
		switch {
		case errors.Is(err, ErrUnread):
			return nil, nil, err
		case err != nil:
			ref, _, _ := source(namespace, property)
			missing.add(property.Name, ref, err)
		case value != nil:
			values[property.Name] = value
			size += len(property.Name) + len(value.GetValue())
		}
	}
	if len(missing) > 0 {
		return nil, missing.problems(), nil
	}
	if size > MaxBytes {
		return nil, []*instancev1.Problem{{
			Reason:  akriv0.ReasonInvalidDetails,
			Message: fmt.Sprintf("the values of the discoveryProperties have %d bytes; at most %d are allowed", size, MaxBytes),
		}}, nil
	}
	return values, nil, nil
}

// resolve returns nil for an optional property that has no value.
func resolve(get Get, namespace string, property akriv0.DiscoveryProperty) (*configurationv1.PropertyValue, error) {
	if property.Value != nil {
		return &configurationv1.PropertyValue{Value: []byte(*property.Value)}, nil
	}
	ref, key, exists := source(namespace, property)
	if !exists {
		return &configurationv1.PropertyValue{}, nil
	}
	data, err := get(ref)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	if value, exists := data[key.Key]; exists {
		if value == nil {
			value = []byte{} // handlers distinguish an empty value from no value
		}
		return &configurationv1.PropertyValue{Value: value}, nil
	}
	switch {
	case key.Optional:
		return nil, nil //nolint:nilnil // nil means no value
	case err != nil:
		return nil, err
	default:
		return nil, fmt.Errorf("key %q of %s %w", key.Key, ref, ErrNotFound)
	}
}

// failures are errors with the names of the properties that have them.
type failures []failure

type failure struct {
	names []string
	ref   Ref
	err   error
}

// add adds a property. Properties with the same error, such as those of one Secret, share it.
func (f *failures) add(name string, ref Ref, err error) {
	for i := range *f {
		if (*f)[i].err.Error() == err.Error() {
			(*f)[i].names = append((*f)[i].names, name)
			return
		}
	}
	*f = append(*f, failure{[]string{name}, ref, err})
}

func (f *failures) problems() []*instancev1.Problem {
	var problems []*instancev1.Problem
	for _, failure := range *f {
		problems = append(problems, &instancev1.Problem{
			Reason:  reasonOf(failure.err),
			Message: fmt.Sprintf("discoveryProperty %s: %v", quoted(failure.names), failure.err),
			Subject: &instancev1.Subject{Kind: failure.ref.Kind, Namespace: failure.ref.Namespace, Name: failure.ref.Name},
		})
	}
	return problems
}

func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }
