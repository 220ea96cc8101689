package devicepluginhost_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOfTwoHostsOnOneNodeTheSecondStandsByUntilTheFirstEnds(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 2)
	m.awaitDevices(configuration, all(healthy, "0"))
	_, err := m.kubelet.allocate(configuration, ids("0"))
	require.NoError(t, err)
	m.pods.set(configuration, "0")
	stopFirst, asked := m.stopHost, m.pods.asked()

	m.startHost()
	m.awaitReady()
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.Greater(c, m.pods.asked(), asked+2) }, soon, 2e6)
	require.Equal(t, 1, m.kubelet.registered(configuration), "the kubelet hears nothing of the second")

	stopFirst()
	m.awaitDevices(configuration, all(healthy, "0", "1"))
	require.Equal(t, 2, m.kubelet.registered(configuration))
	require.Equal(t, []string{"C:0:node-a", ""}, m.writer.usage(first))
	m.pods.set("")
	m.awaitUsage(first, "", "")
}
