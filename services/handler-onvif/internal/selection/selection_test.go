package selection_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-onvif/internal/selection"
)

func decode(details string) (selection.Details, error) {
	var d selection.Details
	if err := handler.DecodeDetails(handler.Request{Details: details}, &d); err != nil {
		return d, err
	}
	return d, d.Validate()
}

func TestFilters(t *testing.T) {
	for name, test := range map[string]struct {
		details string
		uuid    string
		scopes  []string
		ip, mac string
		want    bool
	}{
		"nothing asked":           {want: true},
		"included":                {details: "uuids: {items: [AB]}", uuid: "ab", want: true},
		"not included":            {details: "uuids: {items: [a]}", uuid: "ab"},
		"none included":           {details: "uuids: {items: [], action: Include}", uuid: "ab"},
		"excluded":                {details: "uuids: {items: [AB], action: Exclude}", uuid: "ab"},
		"none excluded":           {details: "uuids: {items: [], action: Exclude}", uuid: "ab", want: true},
		"one scope of several":    {details: "scopes: {items: [x, y]}", scopes: []string{"z", "y"}, want: true},
		"scopes have a case":      {details: "scopes: {items: [X]}", scopes: []string{"x"}},
		"a scope excluded":        {details: "scopes: {items: [y], action: Exclude}", scopes: []string{"z", "y"}},
		"an address":              {details: "ipAddresses: {items: [10.0.0.1]}", ip: "10.0.0.1", want: true},
		"a MAC in another case":   {details: "macAddresses: {items: ['AA:BB']}", mac: "aa:bb", want: true},
		"unknown and included":    {details: "macAddresses: {items: ['AA:BB']}"},
		"unknown and excluded":    {details: "macAddresses: {items: ['AA:BB'], action: Exclude}"},
		"unknown, none excluded":  {details: "macAddresses: {items: [], action: Exclude}", want: true},
		"all filters must agree":  {details: "uuids: {items: [a]}\nipAddresses: {items: [b]}", uuid: "a", ip: "c"},
		"known and none included": {details: "ipAddresses: {items: []}", ip: "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := decode(test.details)
			require.NoError(t, err)
			require.Equal(t, test.want, d.Wants(test.uuid, test.scopes) && d.WantsAt(test.ip, test.mac))
		})
	}
}

func TestMistakesAreToldAllAtOnce(t *testing.T) {
	_, err := decode("uuids: {action: Include}\nscopes: {items: [], action: include}\ndiscoveryTimeoutSeconds: -1\nidentity: mac")
	for _, problem := range []string{"uuids: items: required", `scopes: action: "include"`, "discoveryTimeoutSeconds: -1", `identity: "mac"`} {
		require.ErrorContains(t, err, problem)
	}
	_, err = decode("uuid: {}")
	require.ErrorContains(t, err, `unknown key "uuid"`)
}

func TestIdentityAndTimeout(t *testing.T) {
	d, err := decode("")
	require.NoError(t, err)
	require.Equal(t, "http://a-b", d.ID("http://a", "b"))
	require.Equal(t, time.Second, d.Timeout())
	d, err = decode("identity: uuid\ndiscoveryTimeoutSeconds: 5")
	require.NoError(t, err)
	require.Equal(t, "b", d.ID("http://a", "b"))
	require.Equal(t, 5*time.Second, d.Timeout())
}

func FuzzDetails(f *testing.F) {
	f.Add("uuids: {items: [a], action: Exclude}\nidentity: uuid\ndiscoveryTimeoutSeconds: 3")
	f.Add("scopes: null\nmacAddresses: {}")
	f.Fuzz(func(t *testing.T, details string) {
		if d, err := decode(details); err == nil {
			d.Wants("a", []string{"b"})
			d.WantsAt("", "c")
			require.LessOrEqual(t, d.Timeout(), 10*time.Minute)
		}
	})
}
