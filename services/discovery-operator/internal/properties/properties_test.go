package properties_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/discovery-operator/internal/properties"
)

// fakeReader holds the data of objects by "<kind> <namespace>/<name>".
type fakeReader map[string]map[string][]byte

func (r fakeReader) get(kind, namespace, name string) (map[string][]byte, error) {
	switch name {
	case "broken":
		return nil, errors.New("connection refused")
	case "forbidden":
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: kind}, name, errors.New("no access"))
	}
	data, exists := r[kind+" "+namespace+"/"+name]
	if !exists {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
	}
	return data, nil
}

func (r fakeReader) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	data, err := r.get("Secret", namespace, name)
	return &corev1.Secret{Data: data}, err
}

func (r fakeReader) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	data, err := r.get("ConfigMap", namespace, name)
	configMap := &corev1.ConfigMap{Data: map[string]string{}, BinaryData: map[string][]byte{}}
	for key, value := range data {
		if key == "binary" {
			configMap.BinaryData[key] = value
			continue
		}
		configMap.Data[key] = string(value)
	}
	return configMap, err
}

func secret(namespace, name, key string, optional bool) *akriv0.PropertySource {
	return &akriv0.PropertySource{SecretKeyRef: &akriv0.KeyRef{Namespace: namespace, Name: name, Key: key, Optional: optional}}
}

func configMap(namespace, name, key string, optional bool) *akriv0.PropertySource {
	return &akriv0.PropertySource{ConfigMapKeyRef: &akriv0.KeyRef{Namespace: namespace, Name: name, Key: key, Optional: optional}}
}

func TestResolve(t *testing.T) {
	reader := fakeReader{
		"Secret own/s":      {"k": []byte("in own"), "empty": nil},
		"Secret other/s":    {"k": []byte("in other")},
		"ConfigMap own/c":   {"k": []byte("text"), "binary": {0, 1}},
		"ConfigMap other/c": {},
	}
	value := func(v string) *string { return &v }
	for name, c := range map[string]struct {
		property akriv0.DiscoveryProperty
		want     []byte // want and wantErr are empty: the property is omitted
		unset    bool   // the property has no value
		wantErr  string
	}{
		"a value":                                {property: akriv0.DiscoveryProperty{Value: value("x")}, want: []byte("x")},
		"an empty value":                         {property: akriv0.DiscoveryProperty{Value: value("")}, want: []byte{}},
		"neither value nor source":               {property: akriv0.DiscoveryProperty{}, unset: true},
		"a Secret in the same namespace":         {property: akriv0.DiscoveryProperty{ValueFrom: secret("", "s", "k", false)}, want: []byte("in own")},
		"a Secret in another namespace":          {property: akriv0.DiscoveryProperty{ValueFrom: secret("other", "s", "k", false)}, want: []byte("in other")},
		"an empty key":                           {property: akriv0.DiscoveryProperty{ValueFrom: secret("", "s", "empty", false)}, want: []byte{}},
		"a ConfigMap":                            {property: akriv0.DiscoveryProperty{ValueFrom: configMap("", "c", "k", false)}, want: []byte("text")},
		"binary data of a ConfigMap":             {property: akriv0.DiscoveryProperty{ValueFrom: configMap("", "c", "binary", false)}, want: []byte{0, 1}},
		"an optional object that does not exist": {property: akriv0.DiscoveryProperty{ValueFrom: secret("", "none", "k", true)}},
		"an optional key that does not exist":    {property: akriv0.DiscoveryProperty{ValueFrom: configMap("other", "c", "k", true)}},
		"an object that does not exist": {property: akriv0.DiscoveryProperty{ValueFrom: secret("", "none", "k", false)},
			wantErr: `discoveryProperty "p": Secret own/none not found`},
		"a key that does not exist": {property: akriv0.DiscoveryProperty{ValueFrom: configMap("other", "c", "k", false)},
			wantErr: `discoveryProperty "p": key "k" of ConfigMap other/c not found`},
		"an object that cannot be read": {property: akriv0.DiscoveryProperty{ValueFrom: secret("", "broken", "k", true)},
			wantErr: `discoveryProperty "p": read Secret own/broken: connection refused`},
		"an object that may not be read": {property: akriv0.DiscoveryProperty{ValueFrom: secret("", "forbidden", "k", true)},
			wantErr: `discoveryProperty "p": read Secret own/forbidden: Secret "forbidden" is forbidden: no access; ` + properties.ErrForbidden.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			c.property.Name = "p"
			got, err := properties.Resolve(t.Context(), reader, "own", []akriv0.DiscoveryProperty{c.property})
			if c.wantErr != "" {
				require.EqualError(t, err, c.wantErr)
				return
			}
			require.NoError(t, err)
			if c.want == nil && !c.unset {
				require.Empty(t, got)
				return
			}
			require.Equal(t, c.want, got["p"].Vec)
		})
	}
}

func TestResolveNamesAllMissingValues(t *testing.T) {
	_, err := properties.Resolve(t.Context(), fakeReader{}, "own", []akriv0.DiscoveryProperty{
		{Name: "a", ValueFrom: secret("", "s", "k", false)}, {Name: "b", ValueFrom: configMap("", "c", "k", false)},
	})
	require.ErrorIs(t, err, properties.ErrNotFound)
	require.ErrorContains(t, err, "Secret own/s not found")
	require.ErrorContains(t, err, "ConfigMap own/c not found")
}
