package devicenodes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/services/discovery-operator/internal/devicenodes"
)

// node is a copy of the files of a node.
type node struct {
	t    *testing.T
	root string
}

func newNode(t *testing.T) node {
	t.Helper()
	n := node{t, t.TempDir()}
	for kind, devices := range map[string]map[string]string{
		"char": {"1:3": "virtual/mem/null null", "188:0": "usb/tty/ttyUSB0 ttyUSB0", "189:1": "usb/1-1 bus/usb/001/002", "21:0": "scsi/sg/sg0 sg0"},
		"block": {
			"8:0": "scsi/block/sda sda", "8:1": "scsi/block/sda/sda1 sda1", "8:2": "scsi/block/sda/sda2 sda2",
			"8:16": "scsi2/block/sdb sdb", "8:17": "scsi2/block/sdb/sdb1 sdb1", "8:18": "scsi2/block/sdb/sdb2 sdb2",
			"252:0": "virtual/block/zram0 zram0", "259:0": "nvme/nvme0n1 nvme0n1", "253:0": "virtual/block/dm-0 dm-0",
		},
	} {
		for number, device := range devices {
			directory, name, _ := strings.Cut(device, " ")
			n.write("sys/devices/"+directory+"/uevent", "MAJOR=1\nDEVNAME="+name+"\nDEVTYPE=x\n")
			link := filepath.Join(n.root, "sys/dev", kind, number)
			require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o700))
			require.NoError(t, os.Symlink(filepath.Join("../../devices", directory), link))
		}
	}
	n.write("sys/devices/scsi/block/sda/device/scsi_generic/sg0/dev", "21:0")
	n.write("sys/devices/scsi/block/sda/device/bsg/0:0:0:0/dev", "250:0")
	n.mount()
	n.write("swaps", "Filename Type Size Used Priority\n")
	return n
}

func (n node) write(file, text string) {
	n.t.Helper()
	path := filepath.Join(n.root, file)
	require.NoError(n.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(n.t, os.WriteFile(path, []byte(text), 0o600))
}

// mount writes the mountinfo, with mounts besides that of /proc.
func (n node) mount(lines ...string) {
	n.t.Helper()
	n.write("mountinfo", strings.Join(append([]string{"22 27 0:21 / /proc rw,relatime shared:1 - proc proc rw"}, lines...), "\n")+"\n")
}

func (n node) read() devicenodes.Table {
	return devicenodes.Host{
		Sys: filepath.Join(n.root, "sys"), Swaps: filepath.Join(n.root, "swaps"), Mounts: filepath.Join(n.root, "mountinfo"),
	}.Read()
}

func TestUnusedDevicesAreOffered(t *testing.T) {
	table := newNode(t).read()
	for path, isDisk := range map[string]bool{
		"/dev/null": false, "/dev/ttyUSB0": false, "/dev/bus/usb/001/002": false,
		"/dev/sda": true, "/dev/sda1": true, "/dev/sg0": true, "/dev/bsg/0:0:0:0": true, "/dev/zram0": true, "/dev/dm-0": true,
	} {
		require.NoError(t, table.Check(path), path)
		require.Equal(t, isDisk, table.IsDisk(path), path)
	}
}

// Finding 5: disks that the node uses, in each way that it can use one.
func TestDisksInUse(t *testing.T) {
	const root = "27 1 8:1 / / rw,relatime shared:1 master:2 - ext4 /dev/root rw"
	for name, c := range map[string]struct {
		prepare func(n node)
		use     string
		refused []string
		offered []string
	}{
		"mounted partition": {
			func(n node) { n.mount(root) }, "/dev/sda1 is mounted at /",
			[]string{"/dev/sda", "/dev/sda1", "/dev/sg0", "/dev/bsg/0:0:0:0"}, []string{"/dev/sda2", "/dev/sdb", "/dev/nvme0n1"},
		},
		"mounted disk": {
			func(n node) { n.mount("28 27 8:0 / /data rw - xfs /dev/sda rw") }, "/dev/sda is mounted at /data",
			[]string{"/dev/sda", "/dev/sda1", "/dev/sda2"}, []string{"/dev/sdb"},
		},
		"btrfs of two disks": {
			func(n node) {
				n.mount("29 27 0:44 / /data rw - btrfs /dev/sdb1 rw")
				n.write("sys/fs/btrfs/uuid/devices/sdb1", "")
				n.write("sys/fs/btrfs/uuid/devices/nvme0n1", "")
			}, "",
			[]string{"/dev/sdb", "/dev/sdb1", "/dev/nvme0n1"}, []string{"/dev/sda", "/dev/sdb2"},
		},
		"swap": {
			func(n node) { n.write("swaps", "Filename\tType\n/dev/zram0 partition 1 0 -2\n/swapfile file 1 0 -3\n") }, "/dev/zram0 is swap",
			[]string{"/dev/zram0"}, []string{"/dev/sda"},
		},
		"member of a volume": {
			func(n node) { n.write("sys/devices/scsi2/block/sdb/sdb2/holders/dm-0/dev", "") }, "/dev/sdb2 is part of dm-0",
			[]string{"/dev/sdb", "/dev/sdb2"}, []string{"/dev/sdb1", "/dev/dm-0"},
		},
		"mounts cannot be read": {
			func(n node) { require.NoError(t, os.Remove(filepath.Join(n.root, "mountinfo"))) }, "cannot be checked (find the disks in use",
			[]string{"/dev/sda", "/dev/zram0", "/dev/sg0"}, []string{"/dev/null", "/dev/ttyUSB0"},
		},
		"no mounts": {
			func(n node) { n.write("mountinfo", "") }, "has no mounts",
			[]string{"/dev/sda"}, []string{"/dev/null"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			c.prepare(n)
			table := n.read()
			for _, path := range c.refused {
				require.ErrorContains(t, table.Check(path), c.use, path)
			}
			for _, path := range c.offered {
				require.NoError(t, table.Check(path), path)
			}
		})
	}
}

// Finding 6: a link can point to any device, and its target cannot be seen.
func TestLinksAreRefused(t *testing.T) {
	table := newNode(t).read()
	for _, path := range []string{"/dev/disk/by-id/x", "/dev/vg/lv", "/dev/shm/x", "/dev/bus/usb", "/dev/missing"} {
		require.ErrorContains(t, table.Check(path), "not the name of a device in the kernel")
	}
}

// The files of this node have the format that the package expects.
func TestThisNode(t *testing.T) {
	table := devicenodes.Host{Sys: "/sys", Swaps: "/proc/swaps", Mounts: "/proc/self/mountinfo"}.Read()
	require.NoError(t, table.Check("/dev/null"))
	require.False(t, table.IsDisk("/dev/null"))
}
