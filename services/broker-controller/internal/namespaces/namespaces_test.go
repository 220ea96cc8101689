package namespaces_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/namespaces"
)

func configuration(age time.Duration, namespace, name string, allowed ...string) *akriv0.Configuration {
	return &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
		Spec:       akriv0.ConfigurationSpec{AllowedNamespaces: allowed},
	}
}

func TestAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		configurations []*akriv0.Configuration
		want           map[string]string
	}{
		"none":              {nil, map[string]string{}},
		"not restricted":    {[]*akriv0.Configuration{configuration(0, "prod", "camera")}, map[string]string{}},
		"restricted":        {[]*akriv0.Configuration{configuration(0, "prod", "camera", "b", "a")}, map[string]string{"camera-": "a b prod"}},
		"own namespace":     {[]*akriv0.Configuration{configuration(0, "prod", "camera", "prod")}, map[string]string{"camera-": "prod"}},
		"a dot in the name": {[]*akriv0.Configuration{configuration(0, "prod", "a.b", "x")}, map[string]string{"a-b-": "prod x"}},
		"same name": {
			[]*akriv0.Configuration{configuration(0, "evil", "camera", "evil"), configuration(time.Hour, "prod", "camera", "a")},
			map[string]string{"camera-": "a prod"},
		},
		"same name, not restricted": {
			[]*akriv0.Configuration{configuration(0, "evil", "camera", "evil"), configuration(time.Hour, "prod", "camera")}, map[string]string{},
		},
		"name of an Instance": {
			[]*akriv0.Configuration{configuration(0, "evil", "camera-8120fe", "evil"), configuration(time.Hour, "prod", "camera")}, map[string]string{},
		},
		"long name of an Instance": {
			[]*akriv0.Configuration{configuration(0, "evil", "camera-8120fex55e2ca", "evil"), configuration(time.Hour, "prod", "camera")},
			map[string]string{},
		},
		"older name of an Instance": {
			[]*akriv0.Configuration{configuration(0, "evil", "camera", "evil"), configuration(time.Hour, "prod", "camera-8120fe", "a")},
			map[string]string{"camera-8120fe-": "a prod"},
		},
	} {
		require.Equal(t, c.want, namespaces.Allowed(nil, c.configurations), name)
	}
}

// The oldest Configuration does not decide if another namespace has the name.
func TestAllowedFollowsTheRecord(t *testing.T) {
	both := []*akriv0.Configuration{configuration(time.Hour, "evil", "camera", "evil"), configuration(0, "prod", "camera", "a")}
	require.Equal(t, map[string]string{"camera-": "a prod"}, namespaces.Allowed(map[string]string{"camera": "prod"}, both))
	require.Empty(t, namespaces.Allowed(map[string]string{"camera": "prod"}, both[:1]))
}
