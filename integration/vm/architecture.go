package vm

// architecture is what guests of an architecture differ in.
type architecture struct {
	// qemu is the command that emulates a processor on a board, whose first serial port is the
	// console.
	qemu, processor, board, console string
	// packages are the Debian packages of the commands that guests of the architecture need.
	packages map[string]string
}

var architectures = map[string]architecture{
	"amd64": {
		qemu: "qemu-system-x86_64", processor: "max", board: "q35,usb=off", console: "ttyS0",
		packages: map[string]string{"qemu-system-x86_64": "qemu-system-x86"},
	},
	// The processor of a Raspberry Pi 4. "max" authenticates pointers, which is slow to emulate.
	"arm64": {
		qemu: "qemu-system-aarch64", processor: "cortex-a72", board: "virt", console: "ttyAMA0",
		// The build of the image runs programs of Debian for this architecture.
		packages: map[string]string{"qemu-system-aarch64": "qemu-system-arm", "qemu-aarch64-static": "qemu-user-static"},
	},
}
