package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv0 "akri.sh/proto/v0"
)

// hostileHandler registers a second handler with the name of another one. It cannot change what
// containers get with the device of the first one, and cannot mount directories of the node
// (findings 5 and 6).
func hostileHandler(t *testing.T) {
	const name = "e2eHostile"
	node := akri.Cluster.Nodes()[0]
	apply(t, configurationOf("e2e-hostile", name, ""))
	handle(t, node, name, &discoveryv0.Device{Id: "x", Properties: map[string]string{"FROM": "first"}})
	instance := instanceName("e2e-hostile", "x", "", true)
	awaitInstances(t, "default", "e2e-hostile", instance)

	handleAt(t, node, name, "a-"+name, // before the other endpoint by name
		&discoveryv0.Device{Id: "x", Properties: map[string]string{"FROM": "second"}},
		&discoveryv0.Device{Id: "mount", Mounts: []*discoveryv0.Mount{{ContainerPath: "/host", HostPath: "/"}}},
		&discoveryv0.Device{Id: "memory", DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/dev/mem"}}},
		&discoveryv0.Device{Id: "link", DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/dev/x", HostPath: "/dev/fd/0"}}},
		&discoveryv0.Device{Id: "last-of-a"},
	)
	var hostile []*discoveryv0.Device
	for _, path := range controlling {
		specs := []*discoveryv0.DeviceSpec{{ContainerPath: "/dev/" + path, Permissions: "rwm"}}
		hostile = append(hostile, &discoveryv0.Device{Id: path, DeviceSpecs: specs})
	}
	for _, variable := range executing {
		hostile = append(hostile, &discoveryv0.Device{Id: variable, Properties: map[string]string{variable: "/tmp/x"}})
	}
	handleAt(t, node, name, "b-"+name, append(hostile, &discoveryv0.Device{Id: "last-of-b"})...)
	// A list is read as a whole, so nothing else in it becomes an Instance.
	last := []string{instanceName("e2e-hostile", "last-of-a", "", true), instanceName("e2e-hostile", "last-of-b", "", true)}
	awaitInstances(t, "default", "e2e-hostile", append(last, instance)...)
	message := awaitCondition(t, "default", "e2e-hostile", akriv0.ConditionDevicesAccepted, metav1.ConditionFalse, akriv0.ReasonInvalidDevice)
	require.Contains(t, message, "allow it with --allow-host-paths (chart value global.allowHostPaths)")
	for _, found := range awaitInstances(t, "default", "e2e-hostile", append(last, instance)...) {
		if found.Name == instance {
			require.Equal(t, "first", found.Spec.BrokerProperties["FROM"])
		}
	}
}

// hostileText checks that kubectl, in each form of its output, writes no control characters of a
// property. Containers get the value as the handler sent it (finding 12).
func hostileText(t *testing.T) {
	const name, value = "e2eText", "first line\n\x1b[2Jsecond line\u202e \u009b31m"
	apply(t, configurationOf("e2e-text", name, ""))
	handle(t, akri.Cluster.Nodes()[0], name, &discoveryv0.Device{Id: "x", Properties: map[string]string{"TITLE": value}})
	instance := instanceName("e2e-text", "x", "", true)
	awaitInstances(t, "default", "e2e-text", instance)

	commands := [][]string{{"describe", "akrii", instance}}
	for _, output := range []string{
		"wide", "yaml", "json", "jsonpath={.spec.brokerProperties.TITLE}", "custom-columns=TITLE:.spec.brokerProperties.TITLE",
		"go-template={{.spec.brokerProperties.TITLE}}",
	} {
		commands = append(commands, []string{"get", "akrii", instance, "--output=" + output})
	}
	for _, arguments := range commands {
		text, err := akri.Kubectl(t.Context(), "", append(arguments, "--namespace=default")...)
		require.NoError(t, err)
		require.True(t, akriv0.IsText(text), "%v: %q", arguments, text)
	}

	apply(t, ownPod("e2e-text", instance))
	require.Equal(t, value, environment(t, awaitReadyPod(t, "default", "e2e-text"), "main")["TITLE"])
}

// listedHandler checks that a handler is held by its list, although other handlers may send the
// same devices (finding 6).
func listedHandler(t *testing.T) {
	node := akri.Cluster.Nodes()[0]
	devices := []*discoveryv0.Device{
		{Id: "listed", Properties: map[string]string{"LISTED_BY": "value"}},
		{Id: "named", Properties: map[string]string{"SERIAL": "value"}},
		{Id: "property", Properties: map[string]string{"OTHER": "value"}},
		{Id: "node", DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/dev/null"}}},
	}
	for name, accepted := range map[string][]string{"e2eListed": {"listed", "named"}, "e2eUnlisted": {"listed", "named", "property", "node"}} {
		configuration := strings.ToLower(name)
		apply(t, configurationOf(configuration, name, "properties: {SERIAL: x}"))
		handle(t, node, name, devices...)
		var instances []string
		for _, id := range accepted {
			instances = append(instances, instanceName(configuration, id, "", true))
		}
		awaitInstances(t, "default", configuration, instances...)
	}
	message := awaitCondition(t, "default", "e2elisted", akriv0.ConditionDevicesAccepted, metav1.ConditionFalse, akriv0.ReasonInvalidDevice)
	require.Contains(t, message, "(chart value global.allowFromHandlers.e2eListed.")
}

// controlling are device nodes of the kernel, below /dev, that are not those of a device. executing
// are variables that make programs run other code (finding 6).
var (
	controlling = []string{
		"autofs", "console", "cpu_dma_latency", "fuse", "kmsg", "loop-control", "net/tun", "ptmx", "userfaultfd", "vcs", "vcsu1",
	}
	executing = []string{
		"BASH_ENV", "DOTNET_STARTUP_HOOKS", "GIT_SSH_COMMAND", "JDK_JAVA_OPTIONS", "LD_PRELOAD", "NODE_EXTRA_CA_CERTS", "OPENSSL_CONF",
		"PROMPT_COMMAND",
	}
)

// diskInUse checks that a disk is not a device while the node uses it (finding 5). Swap, unlike a
// mount, is in use on all nodes of the test, which share a kernel.
func diskInUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	disk := command(t, "losetup", "--find", "--show", file)
	t.Cleanup(func() { command(t, "losetup", "--detach", disk) })
	command(t, "mkswap", disk)
	apply(t, configurationOf("e2e-disk", "udev", `udevRules: ['SUBSYSTEM=="block", KERNEL=="`+filepath.Base(disk)+`"']`))
	var names []string
	for _, node := range akri.Cluster.Nodes() {
		names = append(names, instanceName("e2e-disk", "/devices/virtual/block/"+filepath.Base(disk), node.Name(), false))
	}
	awaitInstances(t, "default", "e2e-disk", names...)

	command(t, "swapon", disk)
	t.Cleanup(func() { _ = exec.Command("swapoff", disk).Run() })
	awaitInstances(t, "default", "e2e-disk")
	require.Contains(t, awaitCondition(t, "default", "e2e-disk", akriv0.ConditionDevicesAccepted, metav1.ConditionFalse, akriv0.ReasonInvalidDevice),
		"a disk that the node uses: "+disk+" is swap")

	command(t, "swapoff", disk)
	awaitInstances(t, "default", "e2e-disk", names...)
}

// command runs a command and returns its output without white space around it.
func command(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	output, err := exec.Command(name, arguments...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, output)
	return strings.TrimSpace(string(output))
}
