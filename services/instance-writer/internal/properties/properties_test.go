package properties_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/instance-writer/internal/properties"
)

const user = "system:serviceaccount:akri:akri-instance-writer"

// objects are the data of objects by Ref.String.
type objects map[string]map[string][]byte

func (o objects) get(ref properties.Ref) (map[string][]byte, error) {
	switch ref.Name {
	case "broken":
		return nil, errors.New("connection refused")
	case "unread":
		return nil, properties.ErrUnread
	case "forbidden":
		return nil, &properties.ForbiddenError{Ref: ref, User: user}
	}
	data, exists := o[ref.String()]
	if !exists {
		return nil, fmt.Errorf("%s %w", ref, properties.ErrNotFound)
	}
	return data, nil
}

func secret(namespace, name, key string, optional bool) *akriv0.PropertySource {
	return &akriv0.PropertySource{SecretKeyRef: &akriv0.KeyRef{Namespace: namespace, Name: name, Key: key, Optional: optional}}
}

func configMap(namespace, name, key string, optional bool) *akriv0.PropertySource {
	return &akriv0.PropertySource{ConfigMapKeyRef: &akriv0.KeyRef{Namespace: namespace, Name: name, Key: key, Optional: optional}}
}

func subject(kind, namespace, name string) *instancev1.Subject {
	return &instancev1.Subject{Kind: kind, Namespace: namespace, Name: name}
}

func TestResolve(t *testing.T) {
	stored := objects{
		"Secret own/s":      {"k": []byte("in own"), "empty": nil},
		"Secret other/s":    {"k": []byte("in other")},
		"ConfigMap own/c":   {"k": []byte("text"), "binary": {0, 1}},
		"ConfigMap other/c": {},
	}
	value := func(v string) *string { return &v }
	for name, c := range map[string]struct {
		property akriv0.DiscoveryProperty
		want     []byte // want, reason and message are empty: the property is omitted
		unset    bool   // the property has no value
		reason   string
		message  string
		subject  *instancev1.Subject
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
			reason: akriv0.ReasonPropertyNotFound, message: `discoveryProperty "p": Secret own/none not found`,
			subject: subject("Secret", "own", "none")},
		"a key that does not exist": {property: akriv0.DiscoveryProperty{ValueFrom: configMap("other", "c", "k", false)},
			reason: akriv0.ReasonPropertyNotFound, message: `discoveryProperty "p": key "k" of ConfigMap other/c not found`,
			subject: subject("ConfigMap", "other", "c")},
		"an object that cannot be read": {property: akriv0.DiscoveryProperty{ValueFrom: secret("", "broken", "k", true)},
			reason: akriv0.ReasonDiscoverFailed, message: `discoveryProperty "p": connection refused`,
			subject: subject("Secret", "own", "broken")},
		"an object that may not be read": {property: akriv0.DiscoveryProperty{ValueFrom: configMap("", "forbidden", "k", true)},
			reason: akriv0.ReasonPropertyForbidden, message: `discoveryProperty "p": instance-writer may not read ConfigMap own/forbidden; grant the right with: ` +
				"kubectl create role akri-configmap-forbidden -n own --verb=get,watch --resource=configmaps --resource-name=forbidden && " +
				"kubectl create rolebinding akri-configmap-forbidden -n own --role=akri-configmap-forbidden --serviceaccount=akri:akri-instance-writer",
			subject: subject("ConfigMap", "own", "forbidden")},
		"values that are too long": {property: akriv0.DiscoveryProperty{Value: value(strings.Repeat("x", properties.MaxBytes))},
			reason: akriv0.ReasonInvalidDetails, message: "the values of the discoveryProperties have 1048577 bytes; at most 1048576 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			c.property.Name = "p"
			got, problems, err := properties.Resolve(stored.get, "own", []akriv0.DiscoveryProperty{c.property})
			require.NoError(t, err)
			switch {
			case c.reason != "":
				require.Equal(t, []*instancev1.Problem{{Reason: c.reason, Message: c.message, Subject: c.subject}}, problems)
				require.Empty(t, got)
			case c.want == nil && !c.unset:
				require.Empty(t, problems)
				require.Empty(t, got)
			default:
				require.Empty(t, problems)
				require.Equal(t, c.want, got["p"].Value)
				require.Equal(t, c.property.Value != nil, got["p"].GetLiteral())
			}
		})
	}
}

// Properties with the same problem share a message.
func TestResolveNamesAllMissingValues(t *testing.T) {
	_, problems, err := properties.Resolve(objects{}.get, "own", []akriv0.DiscoveryProperty{
		{Name: "a", ValueFrom: secret("", "s", "k", false)}, {Name: "b", ValueFrom: configMap("", "c", "k", false)},
		{Name: "c", ValueFrom: secret("", "s", "other", false)},
	})
	require.NoError(t, err)
	require.Equal(t, []*instancev1.Problem{
		{Reason: akriv0.ReasonPropertyNotFound, Message: `discoveryProperty "a", "c": Secret own/s not found`, Subject: subject("Secret", "own", "s")},
		{Reason: akriv0.ReasonPropertyNotFound, Message: `discoveryProperty "b": ConfigMap own/c not found`, Subject: subject("ConfigMap", "own", "c")},
	}, problems)
}

func TestResolveWaitsForAllObjects(t *testing.T) {
	_, _, err := properties.Resolve(objects{}.get, "own", []akriv0.DiscoveryProperty{
		{Name: "a", ValueFrom: secret("", "none", "k", false)}, {Name: "b", ValueFrom: secret("", "unread", "k", true)},
	})
	require.ErrorIs(t, err, properties.ErrUnread)
}

func TestForbiddenUser(t *testing.T) {
	err := &properties.ForbiddenError{Ref: properties.Ref{Kind: "Secret", Namespace: "n", Name: "s"}, User: "jane"}
	require.ErrorContains(t, err, "--resource=secrets")
	require.ErrorContains(t, err, "--role=akri-secret-s --user=jane")
}

func TestRefs(t *testing.T) {
	value := "v"
	refs := map[properties.Ref]struct{}{}
	properties.Refs(refs, "own", []akriv0.DiscoveryProperty{
		{ValueFrom: secret("", "s", "a", false)}, {ValueFrom: secret("own", "s", "b", true)}, {ValueFrom: secret("other", "s", "a", false)},
		{ValueFrom: configMap("", "s", "a", false)}, {Value: &value}, {}, {ValueFrom: &akriv0.PropertySource{}},
	})
	require.Equal(t, refsOf(
		properties.Ref{Kind: "Secret", Namespace: "own", Name: "s"}, properties.Ref{Kind: "Secret", Namespace: "other", Name: "s"},
		properties.Ref{Kind: "ConfigMap", Namespace: "own", Name: "s"},
	), refs)
}

func refsOf(refs ...properties.Ref) map[properties.Ref]struct{} {
	set := map[properties.Ref]struct{}{}
	for _, ref := range refs {
		set[ref] = struct{}{}
	}
	return set
}
