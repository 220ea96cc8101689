package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// updateAt updates the list at the given time and returns its ids. A minus sign marks an unhealthy
// device.
func updateAt(t *testing.T, l *deviceList, at time.Duration, existing string) string {
	t.Helper()
	var devices []*pluginapi.Device
	for id := range strings.FieldsSeq(existing) {
		devices = append(devices, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	list, _ := l.update(devices, time.Unix(0, 0).Add(at))
	var ids []string
	for _, device := range list {
		id := device.GetID()
		if device.GetHealth() == pluginapi.Unhealthy {
			id += "-"
		}
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

func TestRemovedDeviceIsUnhealthyFirst(t *testing.T) {
	l := newDeviceList()
	require.Equal(t, "a b c", updateAt(t, l, 0, "a b c"))
	require.Equal(t, "b a- c-", updateAt(t, l, 1, "b"))
	_, delay := l.update([]*pluginapi.Device{{ID: "b"}}, time.Unix(0, 1).Add(removalDelay/2))
	require.Equal(t, removalDelay/2, delay)
	require.Equal(t, "b a- c-", updateAt(t, l, removalDelay, "b"))
	require.Equal(t, "b", updateAt(t, l, removalDelay+1, "b"))
	require.Empty(t, l.removeAt)
	_, delay = l.update([]*pluginapi.Device{{ID: "b"}}, time.Unix(0, 0).Add(removalDelay+2))
	require.Zero(t, delay)
}

func TestReturnedDeviceGetsFullRemovalDelay(t *testing.T) {
	l := newDeviceList()
	updateAt(t, l, 0, "a")
	require.Equal(t, "a-", updateAt(t, l, 1, ""))
	require.Equal(t, "a", updateAt(t, l, removalDelay, "a"))
	require.Equal(t, "a-", updateAt(t, l, removalDelay+2, ""))
	require.Equal(t, "a-", updateAt(t, l, 2*removalDelay+1, ""))
	require.Empty(t, updateAt(t, l, 2*removalDelay+2, ""))
}

func TestDeviceStaysListedDuringAllocate(t *testing.T) {
	at := func(delays time.Duration) time.Time { return time.Unix(0, 0).Add(delays * removalDelay) }
	l := newDeviceList()
	updateAt(t, l, 0, "a b")
	require.NoError(t, l.beginAllocate([]string{"a"}))
	require.NoError(t, l.beginAllocate([]string{"a"}))
	updateAt(t, l, 1, "")
	require.Equal(t, "a-", updateAt(t, l, 10*removalDelay, ""), "b is not being allocated")
	l.endAllocate([]string{"a"}, at(10))
	require.Equal(t, "a-", updateAt(t, l, 20*removalDelay, ""), "one Allocate call still runs")
	l.endAllocate([]string{"a"}, at(20))
	require.Equal(t, "a-", updateAt(t, l, 21*removalDelay-1, ""))
	require.Empty(t, updateAt(t, l, 21*removalDelay, ""))
	require.Empty(t, l.allocating)
}

func TestUnlistedDeviceIsNotAllocated(t *testing.T) {
	l := newDeviceList()
	updateAt(t, l, 0, "a")
	require.ErrorContains(t, l.beginAllocate([]string{"a", "b"}), `device "b" no longer exists on this node`)
	require.Empty(t, l.allocating, "no device is kept after an error")
}
