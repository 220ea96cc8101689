// Package properties resolves the discoveryProperties of a Configuration and watches the Secrets
// and ConfigMaps that they refer to.
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

// ErrNotFound means that an object or key that is not optional does not exist.
var ErrNotFound = errors.New("not found")

// ErrForbidden means that an object may not be read, even if it is optional: its existence is
// unknown.
var ErrForbidden = errors.New(`grant "get" and "watch" on it with a Role or with the chart value discovery-operator.rbac.secrets`)

// errOmitted means that an optional object or key does not exist.
var errOmitted = errors.New("optional value does not exist")

// Reader reads Secrets and ConfigMaps. It returns the errors of the API server, including NotFound
// and Forbidden.
type Reader interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
}

// Resolve returns the values that are sent to a handler. The error names all missing values.
func Resolve(
	ctx context.Context, reader Reader, namespace string, properties []akriv0.DiscoveryProperty,
) (map[string]*discoveryv0.ByteData, error) {
	values := make(map[string]*discoveryv0.ByteData, len(properties))
	var missing []error
	for _, property := range properties {
		value, err := resolve(ctx, reader, namespace, property)
		switch {
		case errors.Is(err, errOmitted):
		case err != nil:
			missing = append(missing, fmt.Errorf("discoveryProperty %q: %w", property.Name, err))
		default:
			values[property.Name] = value
		}
	}
	return values, errors.Join(missing...)
}

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

func lookUp(
	ref akriv0.KeyRef, kind, namespace string, get func(namespace, name string) (map[string][]byte, error),
) (*discoveryv0.ByteData, error) {
	namespace = namespaceOf(ref, namespace)
	data, err := get(namespace, ref.Name)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("read %s %s/%s: %w; %w", kind, namespace, ref.Name, err, ErrForbidden)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read %s %s/%s: %w", kind, namespace, ref.Name, err)
	}
	if value, exists := data[ref.Key]; exists {
		if value == nil {
			value = []byte{} // handlers distinguish an empty value from no value
		}
		return &discoveryv0.ByteData{Vec: value}, nil
	}
	switch {
	case ref.Optional:
		return nil, errOmitted
	case err != nil:
		return nil, fmt.Errorf("%s %s/%s %w", kind, namespace, ref.Name, ErrNotFound)
	default:
		return nil, fmt.Errorf("key %q of %s %s/%s %w", ref.Key, kind, namespace, ref.Name, ErrNotFound)
	}
}

// namespaceOf returns the namespace of a reference, by default that of the Configuration.
func namespaceOf(ref akriv0.KeyRef, configurationNamespace string) string {
	return cmp.Or(ref.Namespace, configurationNamespace)
}
