package inventory_test

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/inventory"
)

func mounting(host, container string) *discoveryv0.Device {
	return &discoveryv0.Device{Id: "x", Mounts: []*discoveryv0.Mount{{HostPath: host, ContainerPath: container}}}
}

func TestDangerousHostPaths(t *testing.T) {
	for _, host := range []string{
		"/", "//", "/etc", "/etc/shadow", "/proc", "/proc/1/root", "/sys", "/dev", "/root/.ssh", "/var", "/var/lib/kubelet/pki", "/var/lib/akri",
		"/run/containerd/containerd.sock", "/run/docker.sock", "/var/run/docker.sock", "/run/crio/crio.sock", "/var/run", "/var/run/secrets/x",
		"/tmp/../etc/passwd", "/data/../..", "/dev/../etc", "/usr/bin/env", "/var/lib/kubelet/pod-resources/kubelet.sock", "/dev/mem",
	} {
		for name, device := range map[string]*discoveryv0.Device{
			"mount": mounting(host, "/inside"), "mount without a host path": mounting("", host),
			"device node": {Id: "x", DeviceSpecs: []*discoveryv0.DeviceSpec{{HostPath: host, ContainerPath: "/dev/x"}}},
		} {
			valid, problems := inventory.Validate(inventory.Policy{}, "h", "e", []*discoveryv0.Device{device})
			require.Empty(t, valid, "%s of %s", name, host)
			require.Contains(t, problems[0].GetMessage(), "--allow-host-paths")
		}
	}
	for _, host := range []string{
		"/dev/ttyUSB0", "/dev/bus/usb/001/002", "/dev/sda", "/dev/vfio/12", "/dev/dri/renderD128", "/opt/vendor/firmware", "/sys/class/gpio", "/srv/x",
		"/etcetera", "/var/lib/vendor", "/tmp/x", "/run/udev/data", "/usr/share/x", "/usr/local/lib/x",
	} {
		valid, problems := inventory.Validate(inventory.Policy{}, "h", "e", []*discoveryv0.Device{mounting(host, "/inside")})
		require.Len(t, valid, 1, "%v", problems)
	}
	policy := inventory.Policy{AllowHostPaths: []string{"/etc/vendor/", "/var/run/docker.sock"}}
	for host, allowed := range map[string]int{
		"/etc/vendor": 1, "/etc/vendor/a.conf": 1, "/etc/vendors": 0, "/etc": 0, "/etc/vendor/../shadow": 0, "/var/run/docker.sock": 1, "/run/docker.sock": 0,
	} {
		valid, _ := inventory.Validate(policy, "h", "e", []*discoveryv0.Device{mounting(host, "/inside")})
		require.Len(t, valid, allowed, host)
	}
}

func TestDangerousProperties(t *testing.T) {
	with := func(name string) []*discoveryv0.Device {
		return []*discoveryv0.Device{{Id: "x", Properties: map[string]string{name: "v"}}, {Id: "y"}}
	}
	for _, name := range []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "path", "http_proxy", "HTTPS_PROXY", "NODE_OPTIONS", "KUBERNETES_SERVICE_HOST", "PYTHONPATH"} {
		valid, problems := inventory.Validate(inventory.Policy{}, "h", "e", with(name))
		require.Len(t, valid, 1, "the other device is valid")
		require.Contains(t, problems[0].GetMessage(), "--allow-properties")
		valid, problems = inventory.Validate(inventory.Policy{AllowProperties: []string{name}}, "h", "e", with(name))
		require.Len(t, valid, 2)
		require.Empty(t, problems)
	}
	for _, name := range []string{"UDEV_DEVPATH", "ONVIF_DEVICE_SERVICE_URL", "DEVICE_PATH", "MY_ENV", "OLD_PATHS", "HOLD_X"} {
		valid, _ := inventory.Validate(inventory.Policy{}, "h", "e", with(name))
		require.Len(t, valid, 2, name)
	}
}

// Valid devices are within the limits and do not use dangerous paths.
func FuzzValidate(f *testing.F) {
	for _, seed := range []string{"/dev/ttyUSB0", "/etc", "/data/../etc/shadow", "//var//run/docker.sock", "", "x", "/proc/self/../1/root"} {
		f.Add("id", "LD_PRELOAD", "value", seed, "rwm")
	}
	f.Add("\x00", "UDEV_DEVNODE", "\x00", "/dev/x", "x")
	f.Fuzz(func(t *testing.T, id, name, value, host, permissions string) {
		valid, problems := inventory.Validate(inventory.Policy{}, "h", "e", []*discoveryv0.Device{{
			Id: id, Properties: map[string]string{name: value}, Mounts: []*discoveryv0.Mount{{HostPath: host, ContainerPath: "/inside"}},
			DeviceSpecs: []*discoveryv0.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/null", Permissions: permissions}},
		}})
		require.Equal(t, 1, len(valid)+len(problems))
		if len(valid) == 0 {
			return
		}
		require.NotEmpty(t, id)
		require.NotContains(t, name+value+id+host, "\x00")
		clean := path.Clean(host)
		for _, tree := range []string{"/etc/", "/proc/", "/root/", "/var/lib/kubelet/", "/run/containerd/"} {
			require.False(t, strings.HasPrefix(clean+"/", tree), host)
		}
	})
}
