package charts_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConsole checks that the console is off by default, and each way in which it gets a
// certificate.
func TestConsole(t *testing.T) {
	const component = "app.kubernetes.io/component: console\n"
	rendered, err := render(t)
	require.NoError(t, err)
	require.NotContains(t, rendered, component)

	rendered, err = render(t, set("console.enabled=true", "console.allowFrom[0].ipBlock.cidr=192.0.2.0/24")...)
	require.NoError(t, err)
	require.Contains(t, rendered, component)
	require.Contains(t, rendered, "- {name: https, containerPort: 8443}")
	require.Contains(t, rendered, "cidr: 192.0.2.0/24")
	require.NotContains(t, rendered, "AKRI_PLAIN_ADDRESS")

	rendered, err = render(t, set("console.enabled=true", "console.existingSecret=console-tls")...)
	require.NoError(t, err)
	require.Contains(t, rendered, "- {name: certificate, mountPath: /var/run/secrets/akri, readOnly: true}")
	require.Contains(t, rendered, "secretName: console-tls")

	proxy := []string{"--set-json", `console.proxy={"containers": [{"name": "proxy", "image": "proxy", "ports": [{"name": "https", "containerPort": 4443}]}],
		"volumes": [{"name": "config", "configMap": {"name": "proxy"}}]}`}
	rendered, err = render(t, append(set("console.enabled=true"), proxy...)...)
	require.NoError(t, err)
	require.Contains(t, rendered, "- name: AKRI_PLAIN_ADDRESS\n              value: 127.0.0.1:8081")
	require.Contains(t, rendered, "- name: AKRI_ADDRESS\n              value: \"\"")
	require.NotContains(t, rendered, "containerPort: 8443}\n            - {name: metrics", "the console does not serve TLS itself")

	_, err = render(t, append(set("console.enabled=true", "console.existingSecret=console-tls"), proxy...)...)
	require.ErrorContains(t, err, "remove console.existingSecret")
}
