package devicepluginhost_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSecondHostStandsBy(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 2)
	f.awaitDevices(configuration, all(healthy, "0"))
	_, err := f.kubelet.allocate(configuration, ids("0"))
	require.NoError(t, err)
	f.pods.set(configuration, "0")
	stopFirst, listed := f.stopHost, f.pods.listed()

	f.startHost()
	f.awaitReady()
	f.eventually(func(c *assert.CollectT) { require.Greater(c, f.pods.listed(), listed+2) })
	require.Equal(t, 1, f.kubelet.registered(configuration), "the second host does not register")

	stopFirst()
	f.eventually(func(c *assert.CollectT) { require.Equal(c, 2, f.kubelet.registered(configuration)) })
	f.awaitDevices(configuration, all(healthy, "0", "1"))
	require.Equal(t, []string{"C:0:node-a", ""}, f.writer.Usage(first))
	f.pods.set("")
	f.awaitUsage(first, "", "")
}
