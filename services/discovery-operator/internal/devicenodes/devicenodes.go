// Package devicenodes reads from sysfs which device nodes the kernel has, and which of them must
// not be offered: those that give control of the node, and disks that the node uses.
package devicenodes

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Host has the files that are read.
type Host struct {
	// Sys is sysfs, which is the same in all containers of a node.
	Sys string
	// Swaps is /proc/swaps, which is the same in all containers of a node.
	Swaps string
	// Mounts is the mountinfo of the node's first process. The own mountinfo of a container does
	// not have the mounts of the node.
	Mounts string
	// AllowClasses are the classes of devices that are offered although they give control of the
	// node: subsystems of the kernel, or names without their number such as ttyS.
	AllowClasses []string
}

// Table has the device nodes of the kernel.
type Table struct {
	host  Host
	disks map[string]*disk // by path
	err   error            // of reading the disks
	// characters reads the directories in sysfs of the character devices, by path. A node has
	// hundreds of them.
	characters func() (map[string]string, error)
}

// disk is a block device.
type disk struct {
	path, number string
	directory    string // in sysfs
	use          string // why it must not be offered; empty if it is not in use
	whole        *disk  // the disk of a partition
	partitions   []*disk
}

// Read reads the current state. A Table that could not be read completely refuses what it does not
// know.
func (h Host) Read() Table {
	t := Table{host: h, disks: map[string]*disk{}, characters: sync.OnceValues(h.readCharacterDevices)}
	t.err = h.readDisks(&t)
	return t
}

// IsDisk returns whether the path is a disk, a partition, or a SCSI device that gives access to
// one.
func (t Table) IsDisk(path string) bool { return t.disks[path] != nil }

// Check returns an error if the path is not a device node of the kernel, if its class must not be
// offered, or if the node uses the disk. It does not follow links, because their targets cannot be
// seen from a container.
func (t Table) Check(path string) error {
	if disk := t.disks[path]; disk != nil {
		if t.err != nil {
			return fmt.Errorf("a disk, whose use by the node cannot be checked (%w)", t.err)
		}
		if err := disk.check(); err != nil {
			return err
		}
	}
	directory, err := t.directory(path)
	if err != nil {
		return err
	}
	return t.host.checkClass(directory)
}

// Class returns the class of the device, by which settings name it. A SCSI device that gives access
// to a disk has the class of the disk.
func (t Table) Class(path string) (string, error) {
	directory, err := t.directory(path)
	if err != nil {
		return "", err
	}
	subsystem, err := subsystemOf(directory)
	if err != nil {
		return "", err
	}
	class, _ := t.host.class(directory, subsystem)
	return class, nil
}

// directory returns the directory of a device in sysfs.
func (t Table) directory(path string) (string, error) {
	if disk := t.disks[path]; disk != nil {
		return disk.directory, nil
	}
	characters, err := t.characters()
	switch err := errors.Join(t.err, err); {
	case characters[path] != "":
		return characters[path], nil
	case err != nil:
		return "", fmt.Errorf("which cannot be checked (%w)", err)
	}
	return "", errors.New("which is not the name of a device in the kernel; links are not followed")
}

// check examines the disk, its partitions, and the disk that it is a partition of: each of them
// gives access to the content of the others.
func (d *disk) check() error {
	related := append([]*disk{d}, d.partitions...)
	if d.whole != nil {
		related = append(related, d.whole)
	}
	for _, disk := range related {
		if disk.use != "" {
			return fmt.Errorf("a disk that the node uses: %s %s", disk.path, disk.use)
		}
	}
	return nil
}

func (h Host) readCharacterDevices() (map[string]string, error) {
	characters := map[string]string{}
	err := eachDevice(filepath.Join(h.Sys, "dev/char"), func(_, directory, node string) { characters[node] = directory })
	return characters, err
}

func (h Host) readDisks(t *Table) error {
	byDirectory := map[string]*disk{}
	err := eachDevice(filepath.Join(h.Sys, "dev/block"), func(number, directory, node string) {
		disk := &disk{path: node, number: number, directory: directory}
		if holders, _ := filepath.Glob(filepath.Join(directory, "holders", "*")); len(holders) > 0 {
			disk.use = "is part of " + filepath.Base(holders[0])
		}
		t.disks[node], byDirectory[directory] = disk, disk
	})
	for directory, disk := range byDirectory {
		if whole := byDirectory[filepath.Dir(directory)]; whole != nil {
			disk.whole = whole
			whole.partitions = append(whole.partitions, disk)
		}
		for _, node := range scsiNodes(directory) {
			t.disks[node] = disk
		}
	}
	return errors.Join(err, h.readSwaps(t), h.readMounts(t), h.readBtrfs(t))
}

// scsiNodes returns the character devices that send commands to a SCSI disk.
func scsiNodes(directory string) []string {
	var nodes []string
	generic, _ := filepath.Glob(filepath.Join(directory, "device/scsi_generic/*"))
	for _, entry := range generic {
		nodes = append(nodes, "/dev/"+filepath.Base(entry))
	}
	bsg, _ := filepath.Glob(filepath.Join(directory, "device/bsg/*"))
	for _, entry := range bsg {
		nodes = append(nodes, "/dev/bsg/"+filepath.Base(entry))
	}
	return nodes
}

// eachDevice calls use with the number, the directory in sysfs and the path of each device with a
// device node. A device may be removed meanwhile.
func eachDevice(directory string, use func(number, device, node string)) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("list devices: %w", err)
	}

	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(directory, entry.Name()))
		if err != nil {
			continue
		}
		device := filepath.Join(directory, target) // the path of a device in sysfs has no other links
		uevent, err := os.ReadFile(filepath.Join(device, "uevent"))
		if err != nil {
			continue
		}
		for line := range bytes.Lines(uevent) {
			if name, found := bytes.CutPrefix(bytes.TrimSpace(line), []byte("DEVNAME=")); found {
				use(entry.Name(), device, "/dev/"+string(name))
			}
		}
	}
	return nil
}

func (h Host) readSwaps(t *Table) error {
	return eachLine(h.Swaps, func(fields []string) {
		if disk := t.disks[fields[0]]; disk != nil {
			disk.use = "is swap"
		}
	})
}

// readMounts finds a mounted disk by its number, and by its path for file systems with numbers of
// their own, such as btrfs. See proc_pid_mountinfo(5).
func (h Host) readMounts(t *Table) error {
	byNumber := map[string]*disk{}
	for _, disk := range t.disks {
		byNumber[disk.number] = disk
	}

	mounts := 0
	err := eachLine(h.Mounts, func(fields []string) {
		separator := slices.Index(fields, "-")
		if len(fields) < 5 || separator < 0 || len(fields) < separator+3 {
			return
		}
		mounts++
		for _, disk := range []*disk{byNumber[fields[2]], t.disks[fields[separator+2]]} {
			if disk != nil && disk.use == "" {
				disk.use = "is mounted at " + fields[4]
			}
		}
	})
	if err == nil && mounts == 0 {
		err = fmt.Errorf("%s has no mounts", h.Mounts)
	}
	return err
}

// readBtrfs finds the other devices of a mounted file system of several devices.
func (h Host) readBtrfs(t *Table) error {
	systems, err := filepath.Glob(filepath.Join(h.Sys, "fs/btrfs/*/devices"))
	for _, system := range systems {
		entries, _ := os.ReadDir(system)
		var members []*disk
		used := ""
		for _, entry := range entries {
			if disk := t.disks["/dev/"+entry.Name()]; disk != nil {
				members = append(members, disk)
				if disk.use != "" {
					used = disk.path
				}
			}
		}

		for _, disk := range members {
			if disk.use == "" && used != "" {
				disk.use = "has a file system with " + used
			}
		}
	}
	return err
}

func eachLine(file string, use func(fields []string)) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("find the disks in use: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 {
			use(fields)
		}
	}
	return lines.Err()
}

const digits = "0123456789"

// A device gives access to one piece of hardware, or emulates one. Other device nodes are
// interfaces of the kernel, and some hardware controls the node: watchdogs, management controllers,
// flash memory, security chips. The kernel has too many of them for a list of names, so the
// subsystem decides.
var (
	// emulated are the subsystems of virtual devices that emulate hardware or give access to it.
	// Other virtual devices are interfaces of the kernel.
	emulated = []string{
		"accel", "cec", "comedi", "drm", "dvb", "gpio", "graphics", "hidraw", "i2c-dev", "iio", "input", "kfd", "lirc",
		"media", "sound", "spidev", "usb", "usbmisc", "vfio", "video4linux",
	}
	// controlling are the subsystems of hardware that controls the node or many devices.
	controlling = []string{
		"bsg", "cxl", "dax", "ipmi", "mei", "mmc_rpmb", "mtd", "nd", "nvme", "nvme-generic", "nvme-subsystem", "ptp", "rpmb", "rtc",
		"tpm", "tpmrm", "uio", "watchdog",
	}
	// mixed are the subsystems with devices of many kinds, which have different kernel names.
	// harmless are the kinds of them that can be offered.
	mixed    = []string{"mem", "misc", "tty"}
	harmless = []string{"full", "null", "random", "urandom", "zero", "ttyACM", "ttyUSB"}
	// controllingDisks are the kinds of disks that are not offered: an unused loop device can be
	// attached to any file, and flash memory can hold the firmware.
	controllingDisks = []string{"loop", "mmcblkboot", "mmcblkrpmb", "mtdblock"}
	// cardArea matches the parts of a memory card with the boot loader and with keys. The kernel
	// has them as disks below the disk of the card.
	cardArea = regexp.MustCompile(`^mmcblk\d+(boot\d+|rpmb)$`)
	// controllers are the types of SCSI devices that control other devices: storage arrays,
	// enclosures, and the well-known units of a device. The disks behind them can be in use.
	controllers = []string{"12", "13", "30"}
)

// checkClass returns an error if the device with the directory in sysfs must not be offered because
// of what it is. The error follows the path of the device node in a sentence.
func (h Host) checkClass(directory string) error {
	subsystem, err := subsystemOf(directory)
	if err != nil {
		return err
	}
	if subsystem == "tty" {
		if err := h.checkConsole(filepath.Base(directory)); err != nil {
			return err
		}
	}

	class, refused := h.class(directory, subsystem)
	if refused && !slices.Contains(h.AllowClasses, class) {
		return fmt.Errorf("which gives control of the node, and needs its class %q in --allow-device-classes "+
			"(chart value global.allowDeviceClasses)", class)
	}
	return nil
}

func subsystemOf(directory string) (string, error) {
	link, err := os.Readlink(filepath.Join(directory, "subsystem"))
	if err != nil {
		return "", fmt.Errorf("which cannot be checked (find the subsystem: %w)", err)
	}
	return filepath.Base(link), nil
}

// class returns the class of a device, by which settings name it, and whether it is refused by
// default.
func (h Host) class(directory, subsystem string) (class string, refused bool) {
	name := filepath.Base(directory)
	virtual := strings.HasPrefix(directory, filepath.Join(h.Sys, "devices/virtual")+"/")
	switch {
	case slices.Contains(mixed, subsystem):
		kind := strings.TrimRight(name, digits)
		return kind, !slices.Contains(harmless, kind)
	case subsystem == "block":
		kind := name[:strings.IndexAny(name+"0", digits)] // that of the disk for a partition, too
		if area := cardArea.FindString(name); area != "" {
			kind = strings.Map(withoutDigits, area)
		}
		if slices.Contains(controllingDisks, kind) {
			return kind, true
		}
		return subsystem, false
	}
	return subsystem, virtual && !slices.Contains(emulated, subsystem) || slices.Contains(controlling, subsystem) ||
		subsystem == "scsi_generic" && isController(directory)
}

func withoutDigits(r rune) rune {
	if strings.ContainsRune(digits, r) {
		return -1
	}
	return r
}

// isController returns whether the SCSI device with the directory in sysfs controls others. One
// whose type cannot be read does.
func isController(directory string) bool {
	kind, err := os.ReadFile(filepath.Join(directory, "device/type"))
	return err != nil || slices.Contains(controllers, strings.TrimSpace(string(kind)))
}

// checkConsole returns an error if the kernel writes its messages to the terminal. Logins usually
// run there, too. A kernel without consoles does not have the file.
func (h Host) checkConsole(name string) error {
	active, err := os.ReadFile(filepath.Join(h.Sys, "class/tty/console/active"))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("which cannot be checked (find the consoles: %w)", err)
	case slices.Contains(strings.Fields(string(active)), name):
		return errors.New("a console of the node")
	}
	return nil
}
