package mask_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/tools/kubectl-akri/internal/mask"
)

const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJha3JpIn0.c2lnbmF0dXJl"

func TestObject(t *testing.T) {
	for _, c := range []struct{ name, object, want string }{
		{
			"discoveryProperties", `{"discoveryProperties": [{"name": "user", "value": "operator"}, {"name": "a", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}]}`,
			`{"discoveryProperties": [{"name": "user", "value": "MASKED"}, {"name": "a", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}]}`,
		},
		{"brokerProperties", `{"brokerProperties": {"PASSWORD": "hunter22", "NODE": "/dev/video0"}}`, `{"brokerProperties": {"PASSWORD": "MASKED", "NODE": "MASKED"}}`},
		{
			"env", `{"env": [{"name": "LOGIN", "value": "x"}, {"name": "AKRI_NODE_NAME", "value": "node-a"}]}`,
			`{"env": [{"name": "LOGIN", "value": "MASKED"}, {"name": "AKRI_NODE_NAME", "value": "node-a"}]}`,
		},
		{
			"annotations", `{"metadata": {"managedFields": [{}], "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter22", "akri.sh/device-id": "x"}}}`,
			`{"metadata": {"annotations": {"akri.sh/device-id": "x"}}}`,
		},
		{"field", `{"password": "hunter22", "serviceAccountToken": {"path": "token"}, "secretName": "login"}`, `{"password": "MASKED", "serviceAccountToken": {"path": "token"}, "secretName": "login"}`},
		{"details", `{"discoveryDetails": "url: rtsp://admin:hunter22@camera/1\npassword: 'two words'\nrate: 5"}`, `{"discoveryDetails": "url: rtsp://MASKED@camera/1\npassword: MASKED\nrate: 5"}`},
		{"arguments", `{"args": ["--password=hunter22", "--token", "--level=info"]}`, `{"args": ["--password=MASKED", "--token", "--level=info"]}`},
		{"numbers", `{"brokerProperties": null, "env": "x", "capacity": 5}`, `{"brokerProperties": null, "env": "x", "capacity": 5}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var object any
			require.NoError(t, json.Unmarshal([]byte(c.object), &object))
			masked, err := json.Marshal(new(mask.Masker).Object(object))
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(masked))
		})
	}
}

func TestText(t *testing.T) {
	masker := &mask.Masker{}
	masker.Object(map[string]any{"brokerProperties": map[string]any{"PASSWORD": "a\"b secret", "TOKEN": "a\"b", "PIN_TOKEN": "12", "NODE": "node-a"}})
	for text, want := range map[string]string{
		`login with a"b secret on node-a at 12:00`:                           `login with MASKED on node-a at 12:00`,
		`{"message":"login a\"b secret"}`:                                    `{"message":"login MASKED"}`,
		"Authorization: Bearer abc.def":                                      "Authorization: Bearer MASKED",
		"token " + jwt + " expired":                                          "token MASKED expired",
		"https://user:pw@host/path":                                          "https://MASKED@host/path",
		"-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----": "-----BEGIN EC PRIVATE KEY-----MASKED",
		"nothing to mask at node-a@10:00":                                    "nothing to mask at node-a@10:00",
	} {
		require.Equal(t, want, masker.Text(text))
	}
}
