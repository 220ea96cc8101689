// Package properties resolves the discoveryProperties of Configurations and watches the Secrets and
// ConfigMaps that they refer to.
package properties

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
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
	var failures []failure
	for _, property := range properties {
		value, err := resolve(get, namespace, property)
		switch {
		case errors.Is(err, ErrUnread):
			return nil, nil, err
		case err != nil:
			same := func(f failure) bool { return f.err.Error() == err.Error() }
			if i := slices.IndexFunc(failures, same); i >= 0 {
				failures[i].names = append(failures[i].names, property.Name)
				continue
			}
			ref, _, _ := source(namespace, property)
			failures = append(failures, failure{[]string{property.Name}, ref, err})
		case value != nil:
			values[property.Name] = value
			size += len(property.Name) + len(value.GetValue())
		}
	}
	if len(failures) > 0 {
		var problems []*instancev1.Problem
		for _, failure := range failures {
			problems = append(problems, failure.problem())
		}
		return nil, problems, nil
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
		return &configurationv1.PropertyValue{Value: []byte(*property.Value), Literal: true}, nil
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

// failure is an error with the names of the properties that have it, such as those of one Secret.
type failure struct {
	names []string
	ref   Ref
	err   error
}

func (f failure) problem() *instancev1.Problem {
	return &instancev1.Problem{
		Reason:  reasonOf(f.err),
		Message: fmt.Sprintf(`discoveryProperty "%s": %v`, strings.Join(f.names, `", "`), f.err),
		Subject: &instancev1.Subject{Kind: f.ref.Kind, Namespace: f.ref.Namespace, Name: f.ref.Name},
	}
}
