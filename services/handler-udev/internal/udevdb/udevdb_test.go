package udevdb_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jochenvg/go-udev"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/details/udev/rules"
	"akri.sh/services/handler-udev/internal/discovery"
	"akri.sh/services/handler-udev/internal/udevdb"
)

// find returns the device of this machine with a kernel name.
func find(t *testing.T, top, kernel string) rules.Device {
	t.Helper()
	devices, err := (&udevdb.Database{}).Devices(top)
	require.NoError(t, err)
	for _, device := range devices {
		if device.Kernel() == kernel {
			return device
		}
	}
	require.FailNow(t, "no device "+kernel)
	return nil
}

// The lists must equal those of libudev's enumeration, on this machine and in the testbed.
func TestDevicesAreThoseOfLibudev(t *testing.T) {
	testbed(t)
	root := os.Getenv("UMOCKDEV_DIR")
	enumerate := (&udev.Udev{}).NewEnumerate()
	paths, err := enumerate.DeviceSyspaths()
	require.NoError(t, err)
	paths = slices.DeleteFunc(paths, pluggedByTests)
	require.NotEmpty(t, paths)
	database := &udevdb.Database{Root: root}
	require.ElementsMatch(t, paths, syspaths(t, database, ""))
	for _, path := range paths {
		top := strings.TrimPrefix(path, "/sys")
		var inside []string
		for _, other := range paths {
			if discovery.Within(path, other) {
				inside = append(inside, other)
			}
		}
		require.ElementsMatch(t, inside, syspaths(t, database, top), "below %s", top)
	}
	require.Empty(t, syspaths(t, database, "/devices/no/such"))
}

// pluggedByTests reports whether other tests may add or remove a device meanwhile.
func pluggedByTests(path string) bool {
	return slices.ContainsFunc([]string{"block", "bdi", "net"}, func(kind string) bool {
		return strings.HasPrefix(path, "/sys/devices/virtual/"+kind+"/")
	})
}

func syspaths(t *testing.T, database *udevdb.Database, top string) []string {
	t.Helper()
	devices, err := database.Devices(top)
	require.NoError(t, err)
	paths := make([]string, len(devices))
	for i, device := range devices {
		paths[i] = "/sys" + device.Devpath()
	}
	return slices.DeleteFunc(paths, pluggedByTests)
}

func TestListingFailsWithoutSysfs(t *testing.T) {
	root := t.TempDir()
	_, err := (&udevdb.Database{Root: root}).Devices("")
	require.ErrorContains(t, err, "list devices: "+root+"/sys/bus/*/devices: file does not exist")
}

func TestDeviceOfTheKernel(t *testing.T) {
	null := find(t, "", "null")
	require.True(t, null.Exists())
	require.Equal(t, "/devices/virtual/mem/null", null.Devpath())
	require.Equal(t, "mem", null.Subsystem())
	require.Empty(t, null.Driver())
	require.Equal(t, "/dev/null", null.Devnode())
	require.Empty(t, null.IOMMUGroup())
	require.Equal(t, "1", null.Property("MAJOR"))
	require.Empty(t, null.Property("NO_SUCH"))
	value, exists := null.Attribute("dev")
	require.True(t, exists)
	require.Equal(t, "1:3", value)
}

func TestMissingAttributeIsNotEmpty(t *testing.T) {
	null := find(t, "/devices/virtual/mem/null", "null")
	for _, name := range []string{"no_such", "power", "subsystem/no_such"} {
		_, exists := null.Attribute(name)
		require.False(t, exists, name)
	}
}

func TestDevicesBelowADevpath(t *testing.T) {
	devices, err := (&udevdb.Database{}).Devices("/devices/virtual/mem/null")
	require.NoError(t, err)
	require.Len(t, devices, 1)
	devices, err = (&udevdb.Database{}).Devices("/devices/virtual/no/such")
	require.NoError(t, err)
	require.Empty(t, devices)
}

func TestParentsAreThoseOfSysfs(t *testing.T) {
	devices, err := (&udevdb.Database{}).Devices("")
	require.NoError(t, err)
	for _, device := range devices {
		for parent := device.Parent(); parent != nil; parent = parent.Parent() {
			require.True(t, strings.HasPrefix(device.Devpath(), parent.Devpath()+"/"))
			require.FileExists(t, filepath.Join("/sys", parent.Devpath(), "uevent"))
		}
	}
	_, err = os.Stat("/sys/devices")
	require.NoError(t, err)
}

func TestDevpathOfDatabaseID(t *testing.T) {
	database := &udevdb.Database{}
	devpath, ok := database.Devpath("c1:3")
	require.True(t, ok)
	require.Equal(t, "/devices/virtual/mem/null", devpath)
	for _, id := range []string{"c999:999", "", "x", "+no:such", "../c1:3"} {
		_, ok := database.Devpath(id)
		require.False(t, ok, id)
	}
}

func BenchmarkDevices(b *testing.B) {
	database := &udevdb.Database{}
	b.Run("list all", func(b *testing.B) {
		for b.Loop() {
			_, err := database.Devices("")
			require.NoError(b, err)
		}
	})
	b.Run("list and open all", func(b *testing.B) {
		for b.Loop() {
			devices, err := database.Devices("")
			require.NoError(b, err)
			for _, device := range devices {
				_ = device.Property("DEVTYPE")
			}
		}
	})
	b.Run("subsystems of all", func(b *testing.B) {
		for b.Loop() {
			devices, err := database.Devices("")
			require.NoError(b, err)
			for _, device := range devices {
				_ = device.Subsystem()
			}
		}
	})
}
