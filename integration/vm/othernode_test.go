package vm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOtherNode has a node as some distributions have it: the kubelet's directory is that of k0s,
// and there is no udevd. Pods get devices in both ways.
func TestOtherNode(t *testing.T) {
	const kubeletDir = "/var/lib/k0s/kubelet"
	s := newSite(t, siteConfig{description: "a node without udevd, with the kubelet in `" + kubeletDir + "`", kubeletDir: kubeletDir})
	run(t, s.node.Guest, endUdevd)
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

// endUdevd ends udevd after it has loaded the drivers that later disks need.
const endUdevd = `modprobe --all usb-storage sd_mod nvme
udevadm settle
systemctl stop systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-udevd
rm --recursive /run/udev`
