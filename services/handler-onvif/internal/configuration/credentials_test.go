package configuration_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/onvif"
	"akri.sh/services/handler-onvif/internal/configuration"
)

func TestParseCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		properties map[string]string
		want       configuration.Credentials
		problems   []string
	}{
		"none": {want: configuration.Credentials{}},
		"single properties": {
			properties: map[string]string{"username_ab_1": "u", "password_ab_1": "p", "username_default": "d", "username_X_Y": "x", "password_z": "alone"},
			want:       configuration.Credentials{"ab-1": {Username: "u", Password: "p"}, "default": {Username: "d"}, "x-y": {Username: "x"}},
		},
		"lists": {
			properties: map[string]string{
				"device_credential_list": `["one", "two"]`,
				"one":                    `{"A": {"username": "u", "password": "cA==", "base64encoded": true}, "b": {"username": "v"}}`,
				"two":                    `{"b": {"username": "w", "password": "q", "base64encoded": false}}`,
			},
			want: configuration.Credentials{"a": {Username: "u", Password: "p"}, "b": {Username: "w", Password: "q"}},
		},
		"references": {
			properties: map[string]string{
				"device_credential_ref_list": `["refs"]`, "user": "u", "secret": "p",
				"refs": `{"a": {"username_ref": "user", "password_ref": "secret"}, "b": {"username_ref": "user"}, "c": {"username_ref": "missing"}}`,
			},
			want:     configuration.Credentials{"a": {Username: "u", Password: "p"}, "b": {Username: "u"}},
			problems: []string{`refs: "c"`, "username_ref"},
		},
		"precedence": {
			properties: map[string]string{
				"device_credential_list": `["l"]`, "device_credential_ref_list": `["r"]`, "user": "ref", "username_c": "single",
				"l": `{"a": {"username": "list"}, "b": {"username": "list"}, "c": {"username": "list"}}`,
				"r": `{"b": {"username_ref": "user"}, "c": {"username_ref": "user"}}`,
			},
			want: configuration.Credentials{"a": {Username: "list"}, "b": {Username: "ref"}, "c": {Username: "single"}},
		},
		"invalid entries are skipped": {
			properties: map[string]string{
				"device_credential_list": `["missing", "text", "mixed"]`, "device_credential_ref_list": "{}", "text": "x",
				"mixed":      `{"a": 1, "b": {"password": "hush"}, "c": {"username": "u", "password": "hush!", "base64encoded": true}, "d": {"username": "u"}}`,
				"username_e": "\xff",
			},
			want: configuration.Credentials{"d": {Username: "u"}},
			problems: []string{
				"missing: no such property", "text: must be a JSON object", `mixed: "a"`, `mixed: "b": username is required`,
				`mixed: "c": password`, "device_credential_ref_list: must be a JSON array", "username_e: username and password must be",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			properties := map[string][]byte{}
			for key, value := range test.properties {
				properties[key] = []byte(value)
			}
			got, err := configuration.ParseCredentials(properties)
			require.Equal(t, test.want, got)
			require.Equal(t, test.problems == nil, err == nil)
			for _, problem := range test.problems {
				require.ErrorContains(t, err, problem)
				require.NotContains(t, err.Error(), "hush", "errors must not contain passwords")
			}
		})
	}
}

func TestCredentialsForCamera(t *testing.T) {
	credentials := configuration.Credentials{"a": {Username: "own"}, "default": {Username: "any"}}
	require.Equal(t, &onvif.Credentials{Username: "own"}, credentials.For("A"))
	require.Equal(t, &onvif.Credentials{Username: "any"}, credentials.For("b"))
	require.Nil(t, configuration.Credentials{}.For("a"))
}

func FuzzParseCredentials(f *testing.F) {
	f.Add([]byte(`["l"]`), []byte(`{"a": {"username": "u", "password": "cA==", "base64encoded": true}}`), "username_a_b")
	f.Add([]byte(`["device_credential_list"]`), []byte(`{"": null}`), "username_")
	f.Fuzz(func(t *testing.T, names, list []byte, single string) {
		credentials, _ := configuration.ParseCredentials(map[string][]byte{
			"device_credential_list": names, "device_credential_ref_list": names, "l": list, single: list,
		})
		require.NotNil(t, credentials)
	})
}
