package inventory_test

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/inventory"
)

func mounting(host, container string) *discoveryv0.Device {
	return &discoveryv0.Device{Id: "x", Mounts: []*discoveryv0.Mount{{HostPath: host, ContainerPath: container}}}
}

func withNode(host, container string) *discoveryv0.Device {
	return &discoveryv0.Device{Id: "x", DeviceSpecs: []*discoveryv0.DeviceSpec{{HostPath: host, ContainerPath: container}}}
}

// Finding 6: nothing is mounted that a setting does not allow.
func TestMountsAreRefused(t *testing.T) {
	for _, host := range []string{
		"/", "//", "/etc", "/proc/1/root", "/dev", "/root/.ssh", "/var/lib/kubelet/pki", "/run/containerd/containerd.sock",
		"/lib/systemd", "/opt/cni/bin", "/usr/local/bin", "/run/nri", "/var/spool/cron", "/home/admin/.ssh",
		"/dev/../etc", "/dev/shm/x", "/dev/sda", "/srv/x", "/opt/vendor/firmware",
	} {
		for _, device := range []*discoveryv0.Device{mounting(host, "/inside"), mounting("", host)} {
			valid, problems := validate(inventory.Policy{}, device)
			require.Empty(t, valid, host)
			require.Contains(t, problems[0].GetMessage(), "allow it with --allow-host-paths (chart value global.allowHostPaths)")
		}
	}
	policy := inventory.Policy{AllowHostPaths: []string{"/etc/vendor/", "/var/run/docker.sock"}}
	for host, allowed := range map[string]int{
		"/etc/vendor": 1, "/etc/vendor/a.conf": 1, "/etc/vendors": 0, "/etc": 0, "/etc/vendor/../shadow": 0,
		"/var/run/docker.sock": 1, "/run/docker.sock": 1,
	} {
		valid, _ := validate(policy, mounting(host, "/inside"))
		require.Len(t, valid, allowed, host)
	}
}

// Findings 5 and 6: a device node is below /dev. What it is, the package devicenodes decides.
func TestPathsOutsideDevAreRefused(t *testing.T) {
	for _, host := range []string{"/dev", "/dev/", "/", "/etc/shadow", "/dev/../etc/shadow", "/devices", "/run/x", "/tmp/../run/mem"} {
		for _, device := range []*discoveryv0.Device{withNode(host, "/dev/x"), withNode("", host)} {
			valid, problems := validate(inventory.Policy{}, device)
			require.Empty(t, valid, host)
			require.Contains(t, problems[0].GetMessage(), "allow it with --allow-host-paths (chart value global.allowHostPaths)")
			valid, _ = validate(inventory.Policy{AllowHostPaths: []string{host}}, device)
			require.Len(t, valid, 1, host)
		}
	}
	for _, host := range []string{"/dev/ttyUSB0", "/dev/bus/usb/001/002", "/dev/vfio/12", "/dev/dri/renderD128", "/dev/nvme0n1", "/tmp/../dev/mem"} {
		valid, problems := validate(inventory.Policy{}, withNode(host, "/dev/x"))
		require.Len(t, valid, 1, "%v", problems)
	}
}

// inUse are the disks that the node uses. All other paths are free device nodes.
type inUse []string

func (d inUse) IsDisk(path string) bool { return slices.Contains(d, path) }

func (inUse) Class(string) (string, error) { return "block", nil }

func (d inUse) Check(path string) error {
	if slices.Contains(d, path) {
		return errors.New("a disk that the node uses")
	}
	return nil
}

// Finding 5: the problem states the device, the path and the setting, and other devices stay.
func TestDisksInUseAreRefused(t *testing.T) {
	list := []*discoveryv0.Device{withNode("/dev/../dev/sda", "/dev/x"), withNode("", "/dev/ttyUSB0")}
	list[1].Id = "serial"
	sources := func() []inventory.Source {
		s := source("/a", false)
		s.Devices = list
		return []inventory.Source{s}
	}
	refused := sources()
	require.True(t, inventory.Policy{}.CheckDeviceNodes(refused, inUse{"/dev/sda"}))
	require.Equal(t, list[1:], refused[0].Devices)
	require.Len(t, refused[0].Problems, 1)
	require.Equal(t, `Discovery Handler "foo" at /a sent device "x" with device node of host path "/dev/sda", a disk that the node uses; `+
		"if containers may use it, allow it with --allow-host-paths (chart value global.allowHostPaths)", refused[0].Problems[0].GetMessage())

	allowed := sources()
	require.True(t, inventory.Policy{AllowHostPaths: []string{"/dev/sda"}}.CheckDeviceNodes(allowed, inUse{"/dev/sda"}))
	require.Equal(t, list, allowed[0].Devices)

	free := sources()
	require.False(t, inventory.Policy{}.CheckDeviceNodes(free, inUse(nil)))
	require.Equal(t, list, free[0].Devices)
	require.Empty(t, free[0].Problems)
}

func TestDangerousProperties(t *testing.T) {
	with := func(name string) []*discoveryv0.Device {
		return []*discoveryv0.Device{{Id: "x", Properties: map[string]string{name: "v"}}, {Id: "y"}}
	}
	for _, name := range []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "path", "http_proxy", "HTTPS_PROXY", "NODE_OPTIONS", "KUBERNETES_SERVICE_HOST", "PYTHONPATH", "BASH_ENV",
		"JDK_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS", "NODE_EXTRA_CA_CERTS", "OPENSSL_CONF", "GIT_SSH_COMMAND", "PROMPT_COMMAND"} {
		valid, problems := validate(inventory.Policy{}, with(name)...)
		require.Len(t, valid, 1, "the other device is valid")
		require.Contains(t, problems[0].GetMessage(), "--allow-properties")
		valid, problems = validate(inventory.Policy{AllowProperties: []string{name}}, with(name)...)
		require.Len(t, valid, 2)
		require.Empty(t, problems)
	}
	for _, name := range []string{"UDEV_DEVPATH", "ONVIF_DEVICE_SERVICE_URL", "DEVICE_PATH", "MY_ENV", "OLD_PATHS", "HOLD_X", "NODE_ID", "SERIAL", "OPCUA_DISCOVERY_URL"} {
		valid, _ := validate(inventory.Policy{}, with(name)...)
		require.Len(t, valid, 2, name)
	}
}

// Valid devices are within the limits and do not use dangerous paths.
func FuzzValidate(f *testing.F) {
	for _, seed := range []string{"/dev/ttyUSB0", "/etc", "/srv/x", "/srv/../etc/shadow", "//var//run/docker.sock", "", "x", "/proc/self/../1/root"} {
		f.Add("id", "LD_PRELOAD", "value", seed, "rwm")
	}
	f.Add("\x00", "UDEV_DEVNODE", "\x00", "/dev/x", "x")
	f.Fuzz(func(t *testing.T, id, name, value, host, permissions string) {
		policy := inventory.Policy{AllowHostPaths: []string{"/srv", "/dev/null"}}
		valid, problems := validate(policy, &discoveryv0.Device{
			Id: id, Properties: map[string]string{name: value}, Mounts: []*discoveryv0.Mount{{HostPath: host, ContainerPath: "/inside"}},
			DeviceSpecs: []*discoveryv0.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/null", Permissions: permissions}},
		})
		require.Equal(t, 1, len(valid)+len(problems))
		if len(valid) == 0 {
			return
		}
		require.NotEmpty(t, id)
		require.NotContains(t, name+value+id+host, "\x00")
		clean := path.Clean(host)
		require.True(t, strings.HasPrefix(clean+"/", "/srv/") || clean == "/dev/null", host)
	})
}
