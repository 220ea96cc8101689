package devicenodes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/services/discovery-operator/internal/devicenodes"
)

// node is a copy of the files of a node.
type node struct {
	t    testing.TB
	root string
}

func newNode(t testing.TB) node {
	t.Helper()
	n := node{t, t.TempDir()}
	for kind, devices := range map[string]map[string]string{
		"char": {
			"1:3": "virtual/mem/null null mem", "188:0": "usb/tty/ttyUSB0 ttyUSB0 tty", "189:1": "usb/1-1 bus/usb/001/002 usb",
			"21:0": "scsi/sg/sg0 sg0 scsi_generic",
		},
		"block": {
			"8:0": "scsi/block/sda sda block", "8:1": "scsi/block/sda/sda1 sda1 block", "8:2": "scsi/block/sda/sda2 sda2 block",
			"8:16": "scsi2/block/sdb sdb block", "8:17": "scsi2/block/sdb/sdb1 sdb1 block", "8:18": "scsi2/block/sdb/sdb2 sdb2 block",
			"252:0": "virtual/block/zram0 zram0 block", "259:0": "nvme/nvme0n1 nvme0n1 block", "253:0": "virtual/block/dm-0 dm-0 block",
		},
	} {
		for number, device := range devices {
			n.add(kind, number, device)
		}
	}
	n.write("sys/devices/scsi/block/sda/device/scsi_generic/sg0/dev", "21:0")
	n.write("sys/devices/scsi/block/sda/device/bsg/0:0:0:0/dev", "250:0")
	n.mount()
	n.write("swaps", "Filename Type Size Used Priority\n")
	return n
}

// add adds a device: its directory below /sys/devices, its path below /dev and its subsystem.
func (n node) add(kind, number, device string) {
	n.t.Helper()
	fields := strings.Fields(device)
	n.write("sys/devices/"+fields[0]+"/uevent", "MAJOR=1\nDEVNAME="+fields[1]+"\nDEVTYPE=x\n")
	require.NoError(n.t, os.Symlink("/sys/class/"+fields[2], filepath.Join(n.root, "sys/devices", fields[0], "subsystem")))
	link := filepath.Join(n.root, "sys/dev", kind, number)
	require.NoError(n.t, os.MkdirAll(filepath.Dir(link), 0o700))
	require.NoError(n.t, os.Symlink(filepath.Join("../../devices", fields[0]), link))
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

func (n node) read(allowClasses ...string) devicenodes.Table {
	return devicenodes.Host{
		Sys: filepath.Join(n.root, "sys"), Swaps: filepath.Join(n.root, "swaps"), Mounts: filepath.Join(n.root, "mountinfo"),
		AllowClasses: allowClasses,
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

// Devices that control the node are refused by what they are: their class, which a setting can
// name.
func TestClasses(t *testing.T) {
	for device, class := range map[string]string{
		// directory below /sys/devices, path below /dev, subsystem
		"virtual/mem/mem mem mem": "mem", "virtual/mem/kmsg kmsg mem": "kmsg", "virtual/misc/kvm kvm misc": "kvm",
		"virtual/misc/fuse fuse misc": "fuse", "virtual/misc/tun net/tun misc": "tun", "virtual/misc/vfio vfio/vfio misc": "vfio",
		"virtual/misc/device-mapper mapper/control misc": "device-mapper", "virtual/misc/unknown unknown misc": "unknown",
		"virtual/tty/tty0 tty0 tty": "tty", "virtual/tty/ptmx ptmx tty": "ptmx", "virtual/vc/vcsa1 vcsa1 vc": "vc",
		"virtual/msr/msr0 cpu/0/msr msr": "msr", "virtual/usbmon/usbmon0 usbmon0 usbmon": "usbmon", "virtual/new/new0 new0 new": "new",
		"pci/nvme/nvme0 nvme0 nvme": "nvme", "pci/nvme/nvme0/ng0n1 ng0n1 nvme-generic": "nvme-generic",
		"virtual/nvme-generic/ng1n1 ng1n1 nvme-generic": "nvme-generic", "virtual/nvme-subsystem/nvme-subsys0 nvme-subsys0 nvme-subsystem": "nvme-subsystem",
		"scsi/bsg/0:0:1:0 bsg/0:0:1:0 bsg": "bsg", "pci/ufs-bsg/ufs-bsg0 bsg/ufs-bsg0 bsg": "bsg", "pci/mei/mei0 mei0 mei": "mei", "pnp/tpm/tpm0 tpm0 tpm": "tpm", "pnp/rtc/rtc0 rtc0 rtc": "rtc",
		"pnp/tty/ttyS1 ttyS1 tty": "ttyS", "platform/mtd/mtd0ro mtd0ro mtd": "mtd", "platform/watchdog/watchdog0 watchdog0 watchdog": "watchdog",
		"platform/mmc_rpmb/mmcblk0rpmb mmcblk0rpmb mmc_rpmb": "mmc_rpmb", "pci/cxl/mem0 cxl/mem0 cxl": "cxl", "nfit/nd/ndctl0 ndctl0 nd": "nd",
		"platform/ipmi/ipmi0 ipmi0 ipmi": "ipmi", "nfit/dax/dax0.0 dax0.0 dax": "dax", "pci/ptp/ptp0 ptp0 ptp": "ptp", "pci/uio/uio0 uio0 uio": "uio",
		"pnp/tpmrm/tpmrm0 tpmrm0 tpmrm": "tpmrm", "mmc/rpmb/rpmb0 rpmb0 rpmb": "rpmb",

		"virtual/mem/zero zero mem": "", "usb/tty/ttyACM0 ttyACM0 tty": "", "virtual/vfio/12 vfio/12 vfio": "",
		"virtual/video4linux/video9 video9 video4linux": "", "usb/sound/controlC1 snd/controlC1 sound": "", "usb/vendor/apex_0 apex_0 apex": "",
		"pci/drm/renderD128 dri/renderD128 drm": "", "i2c/i2c-1 i2c-1 i2c-dev": "",
	} {
		t.Run(device, func(t *testing.T) {
			n := newNode(t)
			n.add("char", "240:0", device)
			path := "/dev/" + strings.Fields(device)[1]
			if class == "" {
				require.NoError(t, n.read().Check(path))
				return
			}
			require.EqualError(t, n.read("other").Check(path), "which gives control of the node, and needs its class "+strconv.Quote(class)+
				" in --allow-device-classes (chart value global.allowDeviceClasses)")
			require.NoError(t, n.read("other", class).Check(path))
		})
	}
}

// A memory card has disks with its boot loader and its keys, which are not in use. Another part of
// the card can be offered.
func TestBootLoadersOfCardsAreRefused(t *testing.T) {
	n := newNode(t)
	for number, name := range []string{"", "/mmcblk0p1", "/mmcblk0p2", "/mmcblk0boot0", "/mmcblk0boot1", "/mmcblk0rpmb", "/mmcblk0gp0"} {
		path := "mmc/block/mmcblk0" + name
		n.add("block", "179:"+strconv.Itoa(number), path+" "+filepath.Base(path)+" block")
	}
	n.add("char", "236:0", "mmc/rpmb/mmcblk1rpmb mmcblk1rpmb mmc_rpmb")
	classes := map[string]string{
		"/dev/mmcblk0boot0": "mmcblkboot", "/dev/mmcblk0boot1": "mmcblkboot", "/dev/mmcblk0rpmb": "mmcblkrpmb", "/dev/mmcblk1rpmb": "mmc_rpmb",
	}
	for _, mounts := range [][]string{nil, {"27 1 179:2 / / rw - ext4 /dev/mmcblk0p2 rw"}} {
		n.mount(mounts...)
		for path, class := range classes {
			require.ErrorContains(t, n.read("block").Check(path), "class "+strconv.Quote(class), path)
			require.NoError(t, n.read(class).Check(path), path)
			got, err := n.read().Class(path)
			require.NoError(t, err)
			require.Equal(t, class, got)
		}
		require.NoError(t, n.read().Check("/dev/mmcblk0p1"))
		require.NoError(t, n.read().Check("/dev/mmcblk0gp0"))
	}
	require.ErrorContains(t, n.read().Check("/dev/mmcblk0"), "/dev/mmcblk0p2 is mounted at /")
}

// A SCSI device that is no disk can control the disks of the node: the type decides. Others, such
// as tapes (1), scanners (6) and changers (8), are offered.
func TestSCSIControllersAreRefused(t *testing.T) {
	n := newNode(t)
	n.add("char", "21:5", "scsi5/scsi_generic/sg5 sg5 scsi_generic")
	require.ErrorContains(t, n.read().Check("/dev/sg5"), `class "scsi_generic"`, "of an unknown type")
	for kind := range 32 {
		n.write("sys/devices/scsi5/scsi_generic/sg5/device/type", strconv.Itoa(kind)+"\n")
		if slices.Contains([]int{12, 13, 30}, kind) {
			require.ErrorContains(t, n.read().Check("/dev/sg5"), `class "scsi_generic"`, "type %d", kind)
			require.NoError(t, n.read("scsi_generic").Check("/dev/sg5"))
		} else {
			require.NoError(t, n.read().Check("/dev/sg5"), "type %d", kind)
		}
	}
}

// Allow lists name the classes of all devices, also of those that need no setting.
func TestClassesOfOfferedDevices(t *testing.T) {
	n := newNode(t)
	n.add("char", "81:0", "usb/video4linux/video0 video0 video4linux")
	n.add("char", "237:0", "virtual/vfio/12 vfio/12 vfio")
	n.add("char", "10:229", "virtual/misc/fuse fuse misc")
	n.add("block", "7:1", "virtual/block/loop0/loop0p1 loop0p1 block")
	table := n.read()
	for path, want := range map[string]string{
		"/dev/video0": "video4linux", "/dev/ttyUSB0": "ttyUSB", "/dev/bus/usb/001/002": "usb", "/dev/null": "null", "/dev/vfio/12": "vfio",
		"/dev/sda": "block", "/dev/sda1": "block", "/dev/sg0": "block", "/dev/nvme0n1": "block", "/dev/dm-0": "block",
		"/dev/fuse": "fuse", "/dev/loop0p1": "loop",
	} {
		class, err := table.Class(path)
		require.NoError(t, err, path)
		require.Equal(t, want, class, path)
	}
	for _, path := range []string{"/dev/disk/by-id/x", "/etc/passwd", ""} {
		class, err := table.Class(path)
		require.Empty(t, class)
		require.ErrorContains(t, err, "not the name of a device in the kernel")
	}
}

// A console is refused even if the class of other serial ports is allowed.
func TestConsolesAreRefused(t *testing.T) {
	n := newNode(t)
	n.add("char", "4:64", "pnp/tty/ttyS0 ttyS0 tty")
	n.add("char", "4:65", "pnp/tty/ttyS1 ttyS1 tty")
	n.write("sys/class/tty/console/active", "tty0 ttyS0\n")
	require.EqualError(t, n.read("ttyS").Check("/dev/ttyS0"), "a console of the node")
	require.NoError(t, n.read("ttyS").Check("/dev/ttyS1"))

	require.NoError(t, os.Remove(filepath.Join(n.root, "sys/class/tty/console/active")))
	require.NoError(t, os.Mkdir(filepath.Join(n.root, "sys/class/tty/console/active"), 0o700)) // cannot be read
	require.ErrorContains(t, n.read("ttyS").Check("/dev/ttyS1"), "cannot be checked (find the consoles")
}

// A partition gives access to the same disk.
func TestDisksThatControlTheNodeAreRefused(t *testing.T) {
	n := newNode(t)
	n.add("block", "7:0", "virtual/block/loop0 loop0 block")
	n.add("block", "7:1", "virtual/block/loop0/loop0p1 loop0p1 block")
	n.add("block", "31:0", "platform/block/mtdblock0 mtdblock0 block")
	for path, class := range map[string]string{"/dev/loop0": "loop", "/dev/loop0p1": "loop", "/dev/mtdblock0": "mtdblock"} {
		require.ErrorContains(t, n.read().Check(path), "class "+strconv.Quote(class), path)
		require.NoError(t, n.read(class).Check(path), path)
	}
}

// The files of this node have the format that the package expects. Of its character devices without
// hardware only those are offered that are known to be harmless.
func TestThisNode(t *testing.T) {
	table := devicenodes.Host{Sys: "/sys", Swaps: "/proc/swaps", Mounts: "/proc/self/mountinfo"}.Read()
	require.NoError(t, table.Check("/dev/null"))
	require.False(t, table.IsDisk("/dev/null"))

	refused := 0
	for _, pattern := range []string{"mem", "misc", "tty", "vc", "cpuid", "msr"} {
		devices, err := filepath.Glob("/sys/devices/virtual/" + pattern + "/*/uevent")
		require.NoError(t, err)
		for _, file := range devices {
			uevent, err := os.ReadFile(file)
			require.NoError(t, err)
			_, name, _ := strings.Cut(string(uevent), "DEVNAME=")
			name, _, _ = strings.Cut(name, "\n")
			if !slices.Contains([]string{"full", "null", "random", "urandom", "zero"}, name) {
				require.Error(t, table.Check("/dev/"+name))
				refused++
			}
		}
	}
	require.NotZero(t, refused)
}

// FuzzFiles has any text before and after the lines of the disks that the node uses, and in the
// uevent of another device. These disks and the other devices are found nevertheless.
func FuzzFiles(f *testing.F) {
	const mount = "30 22 8:1 / /data rw - ext4 /dev/sda1 rw"
	for _, seed := range []string{"", "\x00", " ", "- - -", "1 2 8:16 / / -", "1 2 8:17 / / - x", "/dev/sda", "DEVNAME=", "DEVNAME=x y", mount} {
		f.Add(seed, seed, seed)
	}
	f.Add("MAJOR=1\nDEVNAME=null\nDEVNAME=a/../b", "30 22 8:17 / /data rw - ext4", "/dev/sdb1 partition 1 2 -2")
	n := newNode(f)
	f.Fuzz(func(t *testing.T, uevent, mounts, swaps string) {
		if strings.Contains(uevent, "DEVNAME=s") || strings.Contains(uevent, "DEVNAME=t") {
			return // two devices of a kernel do not have the same name
		}
		n := node{t, n.root}
		n.write("sys/devices/virtual/block/zram0/uevent", uevent)
		n.mount(mounts, mount, mounts)
		n.write("swaps", swaps+"\n/dev/sdb2 partition 1 2 -2\n"+swaps)

		table := n.read()
		for _, used := range []string{"/dev/sda", "/dev/sda1", "/dev/sg0", "/dev/sdb", "/dev/sdb2"} {
			require.ErrorContains(t, table.Check(used), "a disk", used)
		}
		require.NoError(t, table.Check("/dev/ttyUSB0"))
	})
}
