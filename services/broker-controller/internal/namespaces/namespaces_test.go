package namespaces_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

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
		got, cut := namespaces.Allowed(nil, c.configurations)
		require.Equal(t, c.want, got, name)
		require.Empty(t, cut, name)
	}
}

// The oldest Configuration does not decide if another namespace has the name.
func TestAllowedFollowsTheRecord(t *testing.T) {
	both := []*akriv0.Configuration{configuration(time.Hour, "evil", "camera", "evil"), configuration(0, "prod", "camera", "a")}
	got, _ := namespaces.Allowed(map[string]string{"camera": "prod"}, both)
	require.Equal(t, map[string]string{"camera-": "a prod"}, got)
	got, _ = namespaces.Allowed(map[string]string{"camera": "prod"}, both[:1])
	require.Empty(t, got)
}

// The authors of some namespaces create many Configurations with long lists. The lists of another
// namespace are complete, and the policy is not too long.
func TestAllowedIsBounded(t *testing.T) {
	long := make([]string, 64)
	for i := range long {
		long[i] = fmt.Sprintf("%s-%02d", strings.Repeat("n", 60), i)
	}
	rapid.Check(t, func(t *rapid.T) {
		var configurations []*akriv0.Configuration
		counts := rapid.SliceOfN(rapid.IntRange(0, 1000), 0, 4).Draw(t, "Configurations of hostile namespaces")
		for i, count := range counts {
			namespace := fmt.Sprintf("evil-%d", i)
			for j := range count {
				configurations = append(configurations, configuration(time.Hour, namespace, fmt.Sprintf("%s-c%d", namespace, j), long...))
			}
		}
		configurations = append(configurations, configuration(0, "prod", "camera", long[:8]...))

		allowed, cut := namespaces.Allowed(nil, configurations)
		require.Equal(t, strings.Join(long[:8], " ")+" prod", allowed["camera-"])
		size, ownOnly, complete := 0, 0, 0
		for prefix, text := range allowed {
			size += len(prefix) + len(text)
			if strings.Contains(text, " ") {
				complete++
			} else {
				ownOnly++
			}
		}
		require.LessOrEqual(t, size, 1<<20)
		require.Len(t, cut, len(configurations)-complete)
		require.Equal(t, len(cut) > 0, ownOnly > 0, "the devices of the first ones that do not fit are for their namespace only")
	})
}
