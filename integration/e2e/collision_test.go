package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv0 "akri.sh/proto/v0"
)

// collision returns two ids with the same digest, in alphabetical order. About 5,000 ids are enough
// for 16.7 million digests.
func collision() (string, string) {
	seen := map[string]string{}
	for i := 0; ; i++ {
		id := fmt.Sprintf("device-%d", i)
		digest := akriv0.Digest(id, "", true)
		if other, ok := seen[digest]; ok {
			return min(other, id), max(other, id)
		}
		seen[digest] = id
	}
}

// longName returns the name of an Instance if another device has the short name.
func longName(configuration, id string) string {
	return akriv0.InstanceName(configuration, akriv0.LongDigest(id, "", true))
}

// collidingDevices checks that two devices with one digest both get Instances and brokers, and each
// broker the properties of its device.
func collidingDevices(t *testing.T) {
	first, second := collision()
	const configuration = "e2e-collide"
	ids := map[string]string{
		instanceName(configuration, first, "", true): first, longName(configuration, second): second,
		instanceName(configuration, "good", "", true): "good",
	}
	apply(t, echoConfiguration(configuration, 2, broker, first, second, "good"))
	for _, pod := range awaitBrokers(t, "default", configuration, 6) {
		instance := pod.Labels["akri.sh/instance"]
		require.Contains(t, ids, instance)
		env := query(t, &pod).Env
		require.Equal(t, ids[instance], env["DEBUG_ECHO_DESCRIPTION"])
		require.Equal(t, ids[instance], env["DEBUG_ECHO_DESCRIPTION_"+strings.ToUpper(akriv0.InstanceDigest(instance))])
	}
	for _, instance := range instances(t, "default", configuration) {
		require.Equal(t, ids[instance.Name], instance.Annotations[akriv0.DeviceIDAnnotation])
		require.ElementsMatch(t, []string{"node-a", "node-b"}, holderNodes(instance.Spec.DeviceUsage))
	}
}

// collidingNodes checks that a device keeps its name when another node finds a device with the same
// digest.
func collidingNodes(t *testing.T) {
	first, second := collision()
	const configuration = "e2e-nodes"
	apply(t, configurationOf(configuration, "e2eNodes", ""))
	nodes := akri.Cluster.Nodes()
	handle(t, nodes[0], "e2eNodes", &discoveryv0.Device{Id: second})
	short := instanceName(configuration, second, "", true)
	before := awaitInstances(t, "default", configuration, short)
	handle(t, nodes[1], "e2eNodes", &discoveryv0.Device{Id: first})
	for _, instance := range awaitInstances(t, "default", configuration, short, longName(configuration, first)) {
		if instance.Name == short {
			require.Equal(t, before[0].UID, instance.UID)
			require.Equal(t, []string{nodes[0].Name()}, instance.Spec.Nodes)
			continue
		}
		require.Equal(t, []string{nodes[1].Name()}, instance.Spec.Nodes)
	}
}
