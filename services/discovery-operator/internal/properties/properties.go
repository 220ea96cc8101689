// Package properties resolves the discoveryProperties of a Configuration.
package properties

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv0 "akri.sh/proto/v0"
)

// ErrNotFound is in the answer when an object or key that is not optional does not exist.
var ErrNotFound = errors.New("not found")

// ErrForbidden is in the answer when an object may not be read, optional or not: nobody knows whether it exists.
var ErrForbidden = errors.New(`a Role with "get" and "watch" of it, or the chart's value rbac.secrets, would allow that`)

// Reader reads what properties refer to. Both calls answer as the API server does, NotFound and Forbidden included.
type Reader interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
}

// Resolve returns the values for a handler. Where values are missing it names all of them.
func Resolve(ctx context.Context, reader Reader, namespace string, properties []akriv0.DiscoveryProperty) (map[string]*discoveryv0.ByteData, error) {
	values := make(map[string]*discoveryv0.ByteData, len(properties))
	var missing []error
	for _, property := range properties {
		value, err := resolve(ctx, reader, namespace, property)
		switch {
		case errors.Is(err, errLeftOut):
		case err != nil:
			missing = append(missing, fmt.Errorf("discoveryProperty %q: %w", property.Name, err))
		default:
			values[property.Name] = value
		}
	}
	return values, errors.Join(missing...)
}

var errLeftOut = errors.New("optional and not there")

func resolve(ctx context.Context, reader Reader, namespace string, property akriv0.DiscoveryProperty) (*discoveryv0.ByteData, error) {
	switch from := property.ValueFrom; {
	case property.Value != nil:
		return &discoveryv0.ByteData{Vec: []byte(*property.Value)}, nil
	case from == nil:
		return &discoveryv0.ByteData{}, nil
	case from.SecretKeyRef != nil:
		return lookUp(*from.SecretKeyRef, secretKind, namespace, func(namespace, name string) (map[string][]byte, error) {
			secret, err := reader.Secret(ctx, namespace, name)
			if err != nil {
				return nil, err
			}
			return secret.Data, nil
		})
	case from.ConfigMapKeyRef != nil:
		return lookUp(*from.ConfigMapKeyRef, configMapKind, namespace, func(namespace, name string) (map[string][]byte, error) {
			configMap, err := reader.ConfigMap(ctx, namespace, name)
			if err != nil {
				return nil, err
			}
			return configMapData(configMap), nil
		})
	default:
		return &discoveryv0.ByteData{}, nil
	}
}

func configMapData(configMap *corev1.ConfigMap) map[string][]byte {
	data := make(map[string][]byte, len(configMap.Data)+len(configMap.BinaryData))
	maps.Copy(data, configMap.BinaryData)
	for key, value := range configMap.Data {
		data[key] = []byte(value)
	}
	return data
}

func lookUp(ref akriv0.KeyRef, kind, namespace string, get func(namespace, name string) (map[string][]byte, error)) (*discoveryv0.ByteData, error) {
	namespace = inNamespace(ref, namespace)
	data, err := get(namespace, ref.Name)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("read %s %s/%s: %w; %w", kind, namespace, ref.Name, err, ErrForbidden)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read %s %s/%s: %w", kind, namespace, ref.Name, err)
	}
	if value, exists := data[ref.Key]; exists {
		if value == nil {
			value = []byte{} // a handler can tell an empty value from none
		}
		return &discoveryv0.ByteData{Vec: value}, nil
	}
	switch {
	case ref.Optional:
		return nil, errLeftOut
	case err != nil:
		return nil, fmt.Errorf("%s %s/%s %w", kind, namespace, ref.Name, ErrNotFound)
	default:
		return nil, fmt.Errorf("key %q of %s %s/%s %w", ref.Key, kind, namespace, ref.Name, ErrNotFound)
	}
}

// inNamespace is the namespace that a reference means.
func inNamespace(ref akriv0.KeyRef, own string) string {
	return cmp.Or(ref.Namespace, own)
}
