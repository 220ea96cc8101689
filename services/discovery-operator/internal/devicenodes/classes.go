package devicenodes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

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
