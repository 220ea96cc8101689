package inventory

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	discoveryv0 "akri.sh/proto/v0"
)

// Policy lists the exceptions to what devices must not request. Any process that can register as a
// handler decides what containers get.
type Policy struct {
	// MaxDevices is the number of devices of one endpoint for one Configuration.
	MaxDevices int
	// AllowHostPaths are paths that devices may use, with all paths below them: mounts, and device
	// nodes that are refused otherwise.
	AllowHostPaths []string
	// AllowProperties are names of environment variables that may be set.
	AllowProperties []string
}

// controlNodes are device nodes that give control of the node, not of one device: memory, virtual
// machines, and the management of disks. NVMe controllers and some RAID controllers accept raw
// commands for all of their disks.
var controlNodes = []string{
	"/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/kvm", "/dev/vfio/vfio", "/dev/nvram",
	"/dev/mapper/*", "/dev/loop-control", "/dev/btrfs-control", "/dev/zfs", "/dev/raw/*", "/dev/cpu/*/msr",
	"/dev/nvme[0-9]", "/dev/nvme[0-9][0-9]", "/dev/nvme-*", "/dev/ng[0-9]*", "/dev/megaraid*", "/dev/mpt*ctl", "/dev/aac[0-9]*",
}

// dangerousNames are environment variables that change which code a process runs or which servers
// it trusts.
var dangerousNames = []string{
	"BASH_ENV", "CLASSPATH", "ENV", "GCONV_PATH", "HOME", "HOSTALIASES", "IFS", "JAVA_TOOL_OPTIONS",
	"KUBECONFIG", "NODE_OPTIONS", "PATH",
	"PERL5LIB", "PERL5OPT", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "RUBYLIB", "RUBYOPT",
	"SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE",
}

// dangerousPrefixes belong to the dynamic linker, the C library and the address of the API server.
var dangerousPrefixes = []string{"LD_", "DYLD_", "MALLOC_", "GLIBC_", "KUBERNETES_SERVICE_", "KUBERNETES_PORT"}

func (p Policy) checkProperty(name string) error {
	upper := strings.ToUpper(name)
	dangerous := slices.Contains(dangerousNames, upper) ||
		slices.ContainsFunc(dangerousPrefixes, func(prefix string) bool { return strings.HasPrefix(upper, prefix) }) ||
		strings.HasSuffix(upper, "_PROXY")
	if dangerous && !slices.Contains(p.AllowProperties, name) {
		return fmt.Errorf("property %.100q, which changes how programs run; allow it with --allow-properties", name)
	}
	return nil
}

// checkMount allows only what the settings allow: any other directory or file may belong to the
// node or to another workload.
func (p Policy) checkMount(host string) error {
	if p.allows(host) {
		return nil
	}
	return notAllowed("mount", host, "")
}

// checkDeviceNode allows the device nodes of single devices. CheckDeviceNodes examines them
// further.
func (p Policy) checkDeviceNode(host string) error {
	clean := path.Clean(host)
	switch {
	case p.allows(host):
		return nil
	case !strings.HasPrefix(clean, "/dev/"):
		return notAllowed("device node", host, "which is not below /dev")
	case slices.ContainsFunc(controlNodes, func(pattern string) bool { matches, _ := path.Match(pattern, clean); return matches }):
		return notAllowed("device node", host, "which gives control of the node")
	}
	return nil
}

// allows resolves `..` and the usual link /var/run. The container runtime follows other links: an
// allowed directory must be one that only trusted users write to.
func (p Policy) allows(host string) bool {
	return slices.ContainsFunc(p.AllowHostPaths, func(tree string) bool { return contains(cleanPath(tree), cleanPath(host)) })
}

func cleanPath(host string) string {
	clean := path.Clean(host)
	if contains("/var/run", clean) {
		return strings.TrimPrefix(clean, "/var")
	}
	return clean
}

func notAllowed(kind, host, reason string) error {
	if reason != "" {
		reason = ", " + reason
	}
	return fmt.Errorf("%s of host path %.100q%s; if containers may use it, allow it with --allow-host-paths "+
		"(chart value global.allowHostPaths)", kind, host, reason)
}

// contains returns whether the tree contains the file.
func contains(tree, file string) bool {
	return file == tree || strings.HasPrefix(file, strings.TrimSuffix(tree, "/")+"/")
}

// DeviceNodes are the device nodes of the kernel at one time.
type DeviceNodes interface {
	// Check returns why a device node must not be offered. The error follows the path in a
	// sentence.
	Check(path string) error
	// IsDisk returns whether the result of Check depends on how the node uses its disks.
	IsDisk(path string) bool
}

// HaveDeviceNodes returns whether a device has a device node.
func HaveDeviceNodes(sources []Source) bool {
	return slices.ContainsFunc(sources, func(s Source) bool {
		return slices.ContainsFunc(s.Devices, func(d *discoveryv0.Device) bool { return len(d.GetDeviceSpecs()) > 0 })
	})
}

// CheckDeviceNodes moves devices with device nodes that must not be offered to the problems of
// their source. It returns whether a device is a disk: the node may begin or end to use it at any
// time.
func (p Policy) CheckDeviceNodes(sources []Source, nodes DeviceNodes) (disks bool) {
	for i, source := range sources {
		var refused []string
		usable := make([]*discoveryv0.Device, 0, len(source.Devices))
		for _, device := range source.Devices {
			disks = disks || slices.ContainsFunc(device.GetDeviceSpecs(), func(s *discoveryv0.DeviceSpec) bool { return nodes.IsDisk(hostPath(s)) })
			if err := p.checkNodes(device, nodes); err != nil {
				refused = append(refused, fmt.Sprintf("device %.100q with %v", device.GetId(), err))
				continue
			}
			usable = append(usable, device)
		}
		if len(refused) > 0 {
			handler := source.Handler
			sources[i].Devices = usable
			sources[i].Problems = slices.Concat(source.Problems, invalidDevices(handler.GetName(), handler.GetEndpoint(), refused))
		}
	}
	return disks
}

func (p Policy) checkNodes(device *discoveryv0.Device, nodes DeviceNodes) error {
	for _, spec := range device.GetDeviceSpecs() {
		if host := hostPath(spec); !p.allows(host) {
			if err := nodes.Check(host); err != nil {
				return notAllowed("device node", host, err.Error())
			}
		}
	}
	return nil
}

func hostPath(spec *discoveryv0.DeviceSpec) string {
	return path.Clean(cmp.Or(spec.GetHostPath(), spec.GetContainerPath()))
}
