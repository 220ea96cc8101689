package v0_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// A Configuration with a malformed broker must not fail the list that contains it.
func TestUnmarshalMalformedBroker(t *testing.T) {
	const list = `{"kind":"ConfigurationList","items":[
		{"metadata":{"name":"bad"},"spec":{"discoveryHandler":{"name":"udev"},"capacity":2,
			"brokerSpec":{"brokerPodSpec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"lots"}}}]}},
			"instanceServiceSpec":{"ports":80},"configurationServiceSpec":{"ports":[{"port":80}]}},"status":{"devices":1}},
		{"metadata":{"name":"good"},"spec":{"discoveryHandler":{"name":"udev"},"brokerSpec":{"brokerPodSpec":{"containers":[{"name":"a"}]}}}}]}`
	var got akriv0.ConfigurationList
	require.NoError(t, json.Unmarshal([]byte(list), &got))
	bad, good := got.Items[0], got.Items[1]
	require.Equal(t, "bad", bad.Name)
	require.Equal(t, "udev", bad.Spec.DiscoveryHandler.Name)
	require.EqualValues(t, 2, *bad.Spec.Capacity)
	require.EqualValues(t, 1, bad.Status.Devices)
	require.Nil(t, bad.Spec.BrokerSpec)
	require.Nil(t, bad.Spec.InstanceServiceSpec)
	require.EqualValues(t, 80, bad.Spec.ConfigurationServiceSpec.Ports[0].Port)
	require.Len(t, bad.Spec.Malformed, 2)
	require.Equal(t, "spec.brokerSpec", bad.Spec.Malformed[0].Field)
	require.Contains(t, bad.Spec.Malformed[0].Message, "quantities must match")
	require.Equal(t, "spec.instanceServiceSpec", bad.Spec.Malformed[1].Field)
	require.Empty(t, good.Spec.Malformed)
	require.Equal(t, "a", good.Spec.BrokerSpec.BrokerPodSpec.Containers[0].Name)
}
