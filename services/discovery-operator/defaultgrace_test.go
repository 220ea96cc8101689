package operator_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/service"
	operator "akri.sh/services/discovery-operator"
)

// The devices of a handler that is gone stay for the default grace, by the clock. The test runs
// with AKRI_DEFAULT_GRACE=1, because it takes that time.
func TestDefaultGrace(t *testing.T) {
	if os.Getenv("AKRI_DEFAULT_GRACE") == "" {
		t.Skip("takes five minutes; set AKRI_DEFAULT_GRACE=1")
	}
	var grace time.Duration
	for _, flag := range service.Flags[operator.Config]() {
		if flag.Name == "handler-grace" {
			grace, _ = time.ParseDuration(flag.Default)
		}
	}
	require.Equal(t, 5*time.Minute, grace)

	h := newHarness(t, grace)
	handler, kill := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "gone", "foo", "d")
	h.reported(key, true, "x")
	kill()
	killed := time.Now()
	h.eventually(func() bool { return h.registrar.status(handler.endpoint) == offline }, "offline")
	h.registrar.clear()
	require.Eventually(t, func() bool {
		reports := h.writer.reportsOf(key)
		return len(reports[len(reports)-1].GetDevices()) == 0
	}, grace+time.Minute, 100*time.Millisecond, "the removal of the device")
	require.GreaterOrEqual(t, time.Since(killed), grace)
	require.Less(t, time.Since(killed), grace+20*time.Second)
}
