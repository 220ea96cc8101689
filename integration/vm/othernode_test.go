package vm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/vm"
)

// TestOtherNode has a node as some distributions have it: without systemd and udevd, and with the
// kubelet's directory of k0s. Pods get devices in both ways.
func TestOtherNode(t *testing.T) {
	const kubeletDir = "/var/lib/k0s/kubelet"
	s := newSite(t, siteConfig{
		machine: vm.WorkerWithoutSystemd, kubeletDir: kubeletDir,
		description: "a node without systemd and udevd, with the kubelet in `" + kubeletDir + "`",
	})
	s.startGuest(t)
	for _, resources := range []string{"devicePlugin", "dra"} {
		t.Run(resources, func(t *testing.T) {
			// The directory is that of all nodes with services of Akri.
			s.install(t, "global.nodePlane.nodeSelector.kubernetes\\.io/hostname="+guestNode,
				"global.host.kubelet="+kubeletDir, "global.resources="+resources)
			s.offerDisks(t, `SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ATTRS{serial}=="SITE*"`)
			for _, d := range nodeDisks {
				t.Run(d.device.Driver, func(t *testing.T) {
					s.testDisk(t, d, "plugged in, read by a broker (`global.resources="+resources+"`), unplugged")
				})
			}
		})
	}
	require.Empty(t, run(t, s.node.Guest, "find /run/udev -mindepth 1"), "files of udevd")
}
