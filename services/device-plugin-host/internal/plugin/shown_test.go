package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// at tells what is shown at a time, as `a b-` where b is unhealthy, of what is there then.
func (s *shown) at(t *testing.T, now time.Duration, there string) string {
	t.Helper()
	var devices []*pluginapi.Device
	for id := range strings.FieldsSeq(there) {
		devices = append(devices, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	show, _ := s.update(devices, time.Unix(0, 0).Add(now))
	var text []string
	for _, device := range show {
		if device.GetHealth() == pluginapi.Unhealthy {
			device.ID += "-"
		}
		text = append(text, device.GetID())
		device.ID = strings.TrimSuffix(device.ID, "-")
	}
	return strings.Join(text, " ")
}

func TestADeviceThatLeavesIsUnhealthyForAWhile(t *testing.T) {
	s := newShown()
	require.Equal(t, "a b c", s.at(t, 0, "a b c"))
	require.Equal(t, "b a- c-", s.at(t, 1, "b"))
	_, again := s.update([]*pluginapi.Device{{ID: "b"}}, time.Unix(0, 1).Add(linger/2))
	require.Equal(t, linger/2, again)
	require.Equal(t, "b a- c-", s.at(t, linger, "b"))
	require.Equal(t, "b", s.at(t, linger+1, "b"))
	require.Empty(t, s.leaving)
	_, again = s.update([]*pluginapi.Device{{ID: "b"}}, time.Unix(0, 0).Add(linger+2))
	require.Zero(t, again)
}

func TestADeviceThatIsBackHasItsTimeAgain(t *testing.T) {
	s := newShown()
	s.at(t, 0, "a")
	require.Equal(t, "a-", s.at(t, 1, ""))
	require.Equal(t, "a", s.at(t, linger, "a"))
	require.Equal(t, "a-", s.at(t, linger+2, ""))
	require.Equal(t, "a-", s.at(t, 2*linger+1, ""))
	require.Empty(t, s.at(t, 2*linger+2, ""))
}

func TestADeviceIsShownWhileItIsAllocatedAndAWhileLonger(t *testing.T) {
	s := newShown()
	s.at(t, 0, "a b")
	require.NoError(t, s.hold([]string{"a"}))
	require.NoError(t, s.hold([]string{"a"}))
	s.at(t, 1, "")
	require.Equal(t, "a-", s.at(t, 10*linger, ""), "b is not allocated")
	s.release([]string{"a"}, time.Unix(0, 0).Add(10*linger))
	require.Equal(t, "a-", s.at(t, 20*linger, ""), "one more has it")
	s.release([]string{"a"}, time.Unix(0, 0).Add(20*linger))
	require.Equal(t, "a-", s.at(t, 21*linger-1, ""))
	require.Empty(t, s.at(t, 21*linger, ""))
	require.Empty(t, s.busy)
}

func TestADeviceThatIsNotShownIsNotAllocated(t *testing.T) {
	s := newShown()
	s.at(t, 0, "a")
	require.ErrorContains(t, s.hold([]string{"a", "b"}), `device "b" is not offered any more`)
	require.Empty(t, s.busy, "all or none")
}
