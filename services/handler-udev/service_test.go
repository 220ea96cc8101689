package udev_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/handler"
	"akri.sh/libs/handler/handlertest"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	handlerv1 "akri.sh/proto/akri/handler/v1"
	udev "akri.sh/services/handler-udev"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run starts the handler and returns its registration. Without a resync, only events report
// changes.
func run(tb testing.TB) *handlertest.Registration {
	tb.Helper()
	return handlertest.Run(tb, func(flags handler.Flags, env service.Env) (*udev.Service, error) {
		return udev.New(udev.Config{Flags: flags, ResyncInterval: time.Hour, UdevDatabase: tb.TempDir()}, env)
	})
}

func discover(tb testing.TB, endpoint, details string) handlertest.Stream {
	tb.Helper()
	return handlertest.Discover(tb, 2*handlertest.Timeout, endpoint, details)
}

// devices receives lists until one meets the condition, and returns it.
func devices(tb testing.TB, stream handlertest.Stream, until func(map[string]*handler.Device) bool) map[string]*handler.Device {
	tb.Helper()
	for {
		if found := handlertest.Devices(tb, stream); until(found) {
			return found
		}
	}
}

func anyList(map[string]*handler.Device) bool { return true }

// plug adds a compressed RAM disk, a block device that needs no hardware, until the test ends.
func plug(tb testing.TB) (name string, unplug func()) {
	tb.Helper()
	number, err := os.ReadFile("/sys/class/zram-control/hot_add")
	if err != nil {
		tb.Fatalf("this test needs root and the kernel module zram: %v", err)
	}
	id := strings.TrimSpace(string(number))
	plugged := true
	unplug = func() {
		if plugged {
			require.NoError(tb, os.WriteFile("/sys/class/zram-control/hot_remove", []byte(id), 0o200))
			plugged = false
		}
	}
	tb.Cleanup(unplug)
	return "zram" + id, unplug
}

func TestRegistration(t *testing.T) {
	request := run(t)
	require.Equal(t, "udev", request.GetName())
	require.False(t, request.GetShared())
}

// TestTwoHandlers runs two handlers on a node, with sockets of their own in one directory. Both
// list a device, and the second one works without the first.
func TestTwoHandlers(t *testing.T) {
	directory, registrar := handlertest.Directory(t), handlertest.NewRegistrar()
	registrar.Serve(t, directory)
	start := func(socket string) (endpoint string, stop func() error) {
		flags := handler.Flags{DiscoveryHandlersDirectory: directory, SocketName: socket}
		s, err := udev.New(udev.Config{Flags: flags, ResyncInterval: time.Hour, UdevDatabase: t.TempDir()}, handlertest.Env(t))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		stop = sync.OnceValue(func() error { cancel(); return <-done })
		t.Cleanup(func() { require.NoError(t, stop()) })
		request := handlertest.Receive(t, registrar.Requests)
		require.Equal(t, "udev", request.GetName())
		return request.GetEndpoint(), stop
	}
	first, stopFirst := start("")
	second, _ := start("udev-second")
	require.NotEqual(t, first, second)

	const rules = `udevRules: ['SUBSYSTEM=="block", KERNEL=="zram[1-9]*"']`
	streams := []handlertest.Stream{discover(t, first, rules), discover(t, second, rules)}
	name, unplug := plug(t)
	id := "/devices/virtual/block/" + name
	for _, stream := range streams {
		found := devices(t, stream, func(list map[string]*handler.Device) bool { return list[id] != nil })
		require.Equal(t, "/dev/"+name, found[id].GetProperties()["UDEV_DEVNODE"])
	}

	require.NoError(t, stopFirst())
	unplug()
	devices(t, streams[1], func(list map[string]*handler.Device) bool { return list[id] == nil })
}

// A rule that matches nothing: the metric shows that there are devices.
func TestExaminedDevices(t *testing.T) {
	metrics := prometheus.NewRegistry()
	registration := handlertest.Run(t, func(flags handler.Flags, env service.Env) (*udev.Service, error) {
		env.Metrics = metrics
		return udev.New(udev.Config{Flags: flags, ResyncInterval: time.Hour, UdevDatabase: t.TempDir()}, env)
	})
	require.Empty(t, handlertest.Devices(t, discover(t, registration.GetEndpoint(), `udevRules: ['KERNEL=="no-such-device"']`)))
	families, err := metrics.Gather()
	require.NoError(t, err)
	gauges := map[string]float64{}
	for _, family := range families {
		gauges[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
	}
	require.Positive(t, gauges["akri_udev_devices"])
}

func TestPluggedDeviceAppearsAndDisappears(t *testing.T) {
	stream := discover(t, run(t).GetEndpoint(), `{udevRules: ['SUBSYSTEM=="block", KERNEL=="zram[1-9]*"'], properties: {KIND: "ENV{DEVTYPE}", STATE: "ATTR{initstate}"}}`)
	devices(t, stream, anyList)
	name, unplug := plug(t)
	plugged := time.Now()
	id := "/devices/virtual/block/" + name
	found := devices(t, stream, func(list map[string]*handler.Device) bool { return list[id] != nil })
	t.Logf("listed %s after it was plugged in", time.Since(plugged))
	require.Equal(t, map[string]string{"UDEV_DEVPATH": id, "UDEV_DEVNODE": "/dev/" + name, "KIND": "disk", "STATE": "0"}, found[id].GetProperties())
	require.Len(t, found[id].GetDeviceSpecs(), 1)
	spec := found[id].GetDeviceSpecs()[0]
	require.Equal(t, []string{"/dev/" + name, "/dev/" + name, "rw"}, []string{spec.GetHostPath(), spec.GetContainerPath(), spec.GetPermissions()})
	unplug()
	unplugged := time.Now()
	devices(t, stream, func(list map[string]*handler.Device) bool { return list[id] == nil })
	t.Logf("removed from the list %s after it was unplugged", time.Since(unplugged))
}

// TestUdevd is udevd: it runs the test a second time with a /run of its own and writes entries of
// the database there. Without a resync and without events of udevd, the handler sees only the
// files.
func TestUdevd(t *testing.T) {
	const child = "AKRI_TEST_UDEVD"
	if os.Getenv(child) == "" {
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestUdevd$", "-test.v")
		command.Env = append(os.Environ(), child+"=1")
		command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		output, err := command.CombinedOutput()
		require.NoError(t, err, "this test needs root\n%s", output)
		t.Log(string(output))
		return
	}
	require.NoError(t, unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
	const database = "/run/udev/data/"
	endpoint := handlertest.Run(t, func(flags handler.Flags, env service.Env) (*udev.Service, error) {
		return udev.New(udev.Config{Flags: flags, ResyncInterval: time.Hour, UdevDatabase: database}, env)
	}).GetEndpoint()
	const details = `{udevRules: ['SUBSYSTEM=="block", KERNEL=="zram[1-9]*"'], properties: {MODEL: "ENV{ID_MODEL}"}}`
	listed := func(name string) func(map[string]*handler.Device) bool {
		return func(list map[string]*handler.Device) bool { return list["/devices/virtual/block/"+name] != nil }
	}

	// udevd starts after the handler.
	stream := discover(t, endpoint, details)
	devices(t, stream, anyList)
	first, _ := plug(t)
	require.Empty(t, devices(t, stream, listed(first))["/devices/virtual/block/"+first].GetProperties()["MODEL"])
	require.NoError(t, os.MkdirAll(database, 0o700))
	require.NoError(t, os.WriteFile("/run/udev/control", nil, 0o600))

	var second string
	for range 2 {
		second, _ = plug(t)
		written := time.Now()
		writeEntry(t, database, second)
		list := devices(t, stream, listed(second))
		t.Logf("listed %s after udevd wrote its entry", time.Since(written))
		require.Equal(t, second, list["/devices/virtual/block/"+second].GetProperties()["MODEL"])
		require.True(t, listed(first)(list))
	}

	// The first list of another call waits for the first device, which has no entry yet.
	stream = discover(t, endpoint, details)
	writeEntry(t, database, first)
	list := devices(t, stream, anyList)
	require.True(t, listed(first)(list))
	require.True(t, listed(second)(list))
}

// writeEntry writes the entry of a disk as udevd does, with its name as a property.
func writeEntry(t *testing.T, database, name string) {
	t.Helper()
	number, err := os.ReadFile("/sys/block/" + name + "/dev")
	require.NoError(t, err)
	entry := "b" + strings.TrimSpace(string(number))
	require.NoError(t, os.WriteFile(database+".#"+entry, []byte("I:"+monotonic(t)+"\nE:ID_MODEL="+name+"\n"), 0o600))
	require.NoError(t, os.Rename(database+".#"+entry, database+entry))
}

// monotonic returns the time as udevd stores it.
func monotonic(t *testing.T) string {
	t.Helper()
	var now unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return fmt.Sprint(now.Nano() / 1000)
}

func TestRulesSelectPluggedDevice(t *testing.T) {
	name, _ := plug(t)
	endpoint := run(t).GetEndpoint()
	for rule, selected := range map[string]bool{
		`KERNEL=="` + name + `", ATTR{initstate}=="0"`:            true,
		`KERNEL=="` + name + `", ATTR{initstate}!="0"`:            false,
		`KERNEL=="` + name + `", ATTR{no_such}!="0"`:              false,
		`KERNEL=="` + name + `", ATTR{queue/rotational}=="0"`:     true,
		`KERNEL=="` + name + `", ENV{DEVTYPE}=="disk"`:            true,
		`DEVPATH=="/devices/virtual/block/` + name + `"`:          true,
		`DEVPATH=="/devices/virtual/block/` + name + `?*"`:        false,
		`KERNEL=="` + name + `", DRIVER!="x", TAG!="y"`:           true,
		`KERNEL=="` + name + `", SUBSYSTEMS=="usb"`:               false,
		`KERNEL=="nothing|` + name + `", KERNELS=="z*", TAGS!=""`: true,
	} {
		found := devices(t, discover(t, endpoint, "udevRules: ['"+rule+"']"), anyList)
		require.Equal(t, selected, found["/devices/virtual/block/"+name] != nil, rule)
	}
}

func TestEmptyListIsSentAtOnce(t *testing.T) {
	endpoint := run(t).GetEndpoint()
	require.Empty(t, devices(t, discover(t, endpoint, "udevRules: []"), anyList))
	require.Empty(t, devices(t, discover(t, endpoint, `udevRules: ['KERNEL=="no such device"']`), anyList))
}

func TestInvalidRulesAreRejectedWithPosition(t *testing.T) {
	_, err := discover(t, run(t).GetEndpoint(), `udevRules: ['KERNEL=="a"', 'KERNEL=="a", RUN+="x"']`).Recv()
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "udevRules[1]")
	require.ErrorContains(t, err, "position 14: key RUN is not supported")
}

// A rule with a mistake shows the device that has the other values, and the corrected rule.
func TestClosestDevice(t *testing.T) {
	client := handlerv1.NewExplainServiceClient(rpctest.Dial(t, "unix://"+run(t).GetEndpoint()))
	explain := func(rule string) (*handlerv1.ExplainResponse, error) {
		ctx, cancel := context.WithTimeout(t.Context(), handlertest.Timeout)
		defer cancel()
		return client.Explain(ctx, &handlerv1.ExplainRequest{DiscoveryDetails: "udevRules: ['" + rule + "']"})
	}
	response, err := explain(`SUBSYSTEM=="mem", ENV{DEVNAME}=="/dev/nul", KERNEL=="nul?"`)
	require.NoError(t, err)
	require.NotEmpty(t, response.GetClosest())
	closest := response.GetClosest()[0]
	require.Equal(t, "/dev/null", closest.GetDevice())
	require.Equal(t, "mem", closest.GetKind())
	require.Equal(t, []string{`SUBSYSTEM=="mem"`, `KERNEL=="nul?"`}, closest.GetMet())
	require.Equal(t, `ENV{DEVNAME}=="/dev/nul"`, closest.GetMissed())
	require.Equal(t, "/dev/null", closest.GetValue())
	require.Equal(t, `udevRules: ['SUBSYSTEM=="mem", ENV{DEVNAME}=="/dev/null", KERNEL=="nul?"']`+"\n", closest.GetCorrectedDetails())
	_, err = explain(`RUN+="x"`)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

// The corrected rule of a plugged device finds it.
func TestCorrectedRule(t *testing.T) {
	name, _ := plug(t)
	endpoint := run(t).GetEndpoint()
	ctx, cancel := context.WithTimeout(t.Context(), handlertest.Timeout)
	defer cancel()
	response, err := handlerv1.NewExplainServiceClient(rpctest.Dial(t, "unix://"+endpoint)).Explain(ctx,
		&handlerv1.ExplainRequest{DiscoveryDetails: `udevRules: ['KERNEL=="zrm*"']`})
	require.NoError(t, err)
	require.NotEmpty(t, response.GetClosest())
	require.Equal(t, "block", response.GetClosest()[0].GetKind())
	found := devices(t, discover(t, endpoint, response.GetClosest()[0].GetCorrectedDetails()), anyList)
	require.Contains(t, found, "/devices/virtual/block/"+name)
}

func BenchmarkPlugToSend(b *testing.B) {
	stream := discover(b, run(b).GetEndpoint(), `udevRules: ['SUBSYSTEM=="block", KERNEL=="zram[1-9]*"']`)
	devices(b, stream, anyList)
	for b.Loop() {
		name, unplug := plug(b)
		id := "/devices/virtual/block/" + name
		devices(b, stream, func(list map[string]*handler.Device) bool { return list[id] != nil })
		b.StopTimer()
		unplug()
		devices(b, stream, func(list map[string]*handler.Device) bool { return list[id] == nil })
		b.StartTimer()
	}
}

// The webhook must accept and refuse the same details.
func TestDetailsAreThoseOfTheWebhook(t *testing.T) {
	handlertest.CheckDetails(t, run(t).GetEndpoint())
}
