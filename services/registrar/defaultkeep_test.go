package registrar_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/service"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	"akri.sh/services/registrar"
)

// A handler that is offline stays in the table for the default time, by the clock. The part that
// takes this time runs with AKRI_DEFAULT_GRACE=1.
func TestDefaultKeepOffline(t *testing.T) {
	config := configIn(t.TempDir())
	for _, flag := range service.Flags[registrar.Config]() {
		if flag.Name == "keep-offline" {
			var err error
			config.KeepOffline, err = time.ParseDuration(flag.Default)
			require.NoError(t, err)
		}
	}
	require.Equal(t, 5*time.Minute, config.KeepOffline)
	if os.Getenv("AKRI_DEFAULT_GRACE") == "" {
		t.Skip("the rest takes five minutes; set AKRI_DEFAULT_GRACE=1")
	}

	r := start(t, config)
	require.NoError(t, r.register(t, udev))
	report(t, r.client(t), 1, registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE)
	offline := r.list(t)[0].GetOfflineSince().AsTime()
	require.Eventually(t, func() bool { return len(r.list(t)) == 0 }, config.KeepOffline+time.Minute, time.Second)
	require.WithinRange(t, time.Now(), offline.Add(config.KeepOffline), offline.Add(config.KeepOffline+20*time.Second))
}
