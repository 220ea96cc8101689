package onvif_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/details/onvif"
)

func TestFilters(t *testing.T) {
	for name, test := range map[string]struct {
		details string
		uuid    string
		scopes  []string
		ip, mac string
		want    bool
	}{
		"no filter":               {want: true},
		"included":                {details: "uuids: {items: [AB]}", uuid: "ab", want: true},
		"not included":            {details: "uuids: {items: [a]}", uuid: "ab"},
		"empty Include":           {details: "uuids: {items: [], action: Include}", uuid: "ab"},
		"excluded":                {details: "uuids: {items: [AB], action: Exclude}", uuid: "ab"},
		"empty Exclude":           {details: "uuids: {items: [], action: Exclude}", uuid: "ab", want: true},
		"one of several scopes":   {details: "scopes: {items: [x, y]}", scopes: []string{"z", "y"}, want: true},
		"scopes: case-sensitive":  {details: "scopes: {items: [X]}", scopes: []string{"x"}},
		"excluded scope":          {details: "scopes: {items: [y], action: Exclude}", scopes: []string{"z", "y"}},
		"included IP address":     {details: "ipAddresses: {items: [10.0.0.1]}", ip: "10.0.0.1", want: true},
		"MAC: case-insensitive":   {details: "macAddresses: {items: ['AA:BB']}", mac: "aa:bb", want: true},
		"unknown MAC, Include":    {details: "macAddresses: {items: ['AA:BB']}"},
		"unknown MAC, Exclude":    {details: "macAddresses: {items: ['AA:BB'], action: Exclude}"},
		"unknown, empty Exclude":  {details: "macAddresses: {items: [], action: Exclude}", want: true},
		"all filters must match":  {details: "uuids: {items: [a]}\nipAddresses: {items: [b]}", uuid: "a", ip: "c"},
		"known IP, empty Include": {details: "ipAddresses: {items: []}", ip: "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := onvif.Parse(test.details)
			require.NoError(t, err)
			require.Equal(t, test.want, d.MatchesEndpoint(test.uuid, test.scopes) && d.MatchesAddresses(test.ip, test.mac))
		})
	}
}

func TestValidateReportsAllErrors(t *testing.T) {
	_, err := onvif.Parse("uuids: {action: Include}\nscopes: {items: [], action: include}\ndiscoveryTimeoutSeconds: -1\nidentity: mac")
	for _, problem := range []string{"uuids: items: required", `scopes: action: "include"`, "discoveryTimeoutSeconds: -1", `identity: "mac"`} {
		require.ErrorContains(t, err, problem)
	}
	_, err = onvif.Parse("uuid: {}")
	require.ErrorContains(t, err, `unknown key "uuid"`)
}

func TestDeviceIDAndTimeout(t *testing.T) {
	d, err := onvif.Parse("")
	require.NoError(t, err)
	require.Equal(t, "http://a-b", d.DeviceID("http://a", "b"))
	require.Equal(t, time.Second, d.Timeout())
	d, err = onvif.Parse("identity: uuid\ndiscoveryTimeoutSeconds: 5")
	require.NoError(t, err)
	require.Equal(t, "b", d.DeviceID("http://a", "b"))
	require.Equal(t, 5*time.Second, d.Timeout())
}

func FuzzParse(f *testing.F) {
	f.Add("uuids: {items: [a], action: Exclude}\nidentity: uuid\ndiscoveryTimeoutSeconds: 3")
	f.Add("scopes: null\nmacAddresses: {}")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := onvif.Parse(text); err == nil {
			d.MatchesEndpoint("a", []string{"b"})
			d.MatchesAddresses("", "c")
			require.LessOrEqual(t, d.Timeout(), 10*time.Minute)
		}
	})
}
