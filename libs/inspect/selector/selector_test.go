package selector_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/selector"
)

func TestMatches(t *testing.T) {
	device := &resourcev1.Device{Name: "camera-8120fe", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		"configuration": {StringValue: new("camera")}, "shared": {BoolValue: new(true)},
	}}
	for _, c := range []struct {
		expression string
		want       bool
		err        string
	}{
		{`device.attributes["akri.sh"].configuration == "camera"`, true, ""},
		{`device.attributes["akri.sh"].configuration == "disk"`, false, ""},
		{`device.driver == "akri.sh" && device.attributes["akri.sh"].shared`, true, ""},
		{`device.attributes["akri.sh"].SERIAL == "X1"`, false, "no such key: SERIAL"},
		{`int(device.attributes["akri.sh"].configuration) == size("no such key: SERIAL")`, false, "conversion error"},
		{`device.`, false, "Syntax error"},
	} {
		evaluator := selector.New()
		for range 2 {
			matches, err := evaluator.Matches(c.expression, "akri.sh", device)
			require.Equal(t, c.want, matches, c.expression)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
				require.Equal(t, strings.HasPrefix(c.err, "no such key"), errors.Is(err, explain.ErrNoAttribute), c.expression)
			}
		}
	}
}

func TestTerms(t *testing.T) {
	for expression, want := range map[string][]string{
		`a == 1 && (b || c) && d.e["f"].g == "h"`: {"a == 1", "b || c", `d.e["f"].g == "h"`},
		`(a && b) && c`: {"a", "b", "c"},
		`a || b && c`:   {"a || b && c"},
		`a &&`:          {"a &&"},
	} {
		require.Equal(t, want, selector.New().Terms(expression), expression)
	}
}
