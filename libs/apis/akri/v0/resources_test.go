package v0_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// FuzzInstanceOfDevice reads any names as those of a pool and a device of a ResourceClaim, which
// are those of others, too. A pool of Akri has the Instance, and another one none.
func FuzzInstanceOfDevice(f *testing.F) {
	for _, pool := range []string{
		"", "/", "//", "ns/cam-8120fe", "ns/node/node-a", "ns/configuration/cam", "ns/other/cam", "ns/node/node-a/x", "gpu", "/configuration/",
	} {
		f.Add(pool, "cam-8120fe", "ns", "cam", "node-a")
		f.Add(pool, "cam-8120fe-0", "", "", "")
	}
	f.Fuzz(func(t *testing.T, pool, device, namespace, configuration, node string) {
		of, instance := akriv0.InstanceOfDevice(pool, device)
		require.NotContains(t, of, "/")
		if of != "" {
			require.True(t, strings.HasPrefix(pool, of+"/"))
			require.Contains(t, []string{device, strings.TrimPrefix(pool, of+"/")}, instance)
		}

		if namespace == "" || strings.Contains(namespace+configuration+node+device, "/") {
			return // Kubernetes has no such names
		}
		for _, pool := range []string{akriv0.DevicePool(namespace, configuration, node, device), akriv0.InstancePool(namespace, device)} {
			of, instance := akriv0.InstanceOfDevice(pool, device)
			require.Equal(t, namespace+"/"+device, of+"/"+instance)
		}
	})
}
