package udevdb_test

import (
	"os"
	"regexp"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/services/handler-udev/internal/udevdb"
)

func TestLooksAtAllDevicesKeepNoMemory(t *testing.T) {
	var database udevdb.Database
	look := func(times int) {
		for range times {
			done := make(chan error)
			go func() {
				runtime.LockOSThread() // the thread ends with the goroutine: the next look has another
				devices, err := database.Devices("")
				if err == nil && len(devices) == 0 {
					err = os.ErrNotExist
				}
				for _, device := range devices {
					device.Exists() // libudev opens it
				}
				done <- err
			}()
			require.NoError(t, <-done)
		}
	}
	look(5)
	before := private(t)
	look(40)
	t.Logf("%d KiB more after 40 looks", private(t)-before)
	require.Less(t, private(t)-before, 4<<10, "KiB more")
}

// private is the process's memory that no file backs, in KiB.
func private(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	found := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, found)
	value, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return value
}
