package rules

// field is the property of a device that a key matches. The values are ordered by the cost of
// reading them.
type field int

const (
	devpath field = iota
	kernel
	subsystem
	driver
	property
	tag
	attribute
)

// key is a supported key of a rule.
type key struct {
	word    string // set by keyOf
	field   field
	parents bool // also matches ancestors
	named   bool // requires a name in braces
}

var keys = map[string]key{
	"ATTR":       {field: attribute, named: true},
	"ATTRS":      {field: attribute, named: true, parents: true},
	"DEVPATH":    {field: devpath},
	"DRIVER":     {field: driver},
	"DRIVERS":    {field: driver, parents: true},
	"ENV":        {field: property, named: true},
	"KERNEL":     {field: kernel},
	"KERNELS":    {field: kernel, parents: true},
	"SUBSYSTEM":  {field: subsystem},
	"SUBSYSTEMS": {field: subsystem, parents: true},
	"TAG":        {field: tag},
	"TAGS":       {field: tag, parents: true},
}

func keyOf(word string) (k key, ok bool) {
	k, ok = keys[word]
	k.word = word
	return k, ok
}

// supported lists the keys for error messages.
const supported = "ATTR{}, ATTRS{}, DEVPATH, DRIVER, DRIVERS, ENV{}, KERNEL, KERNELS, SUBSYSTEM, SUBSYSTEMS, TAG, TAGS"

// unsupported maps the keys of udev that are not supported to the reason.
var unsupported = map[string]string{
	"ACTION": "events do not select devices", "CONST": "tests the machine, not the device",
	"GOTO": "controls rule files", "LABEL": "controls rule files", "LAST_RULE": "controls rule files",
	"GROUP": "assigns a value", "IMPORT": "assigns values", "MODE": "assigns a value", "NAME": "assigns a value",
	"OPTIONS": "assigns a value", "OWNER": "assigns a value", "SECLABEL": "assigns a value", "SYMLINK": "assigns a value",
	"PROGRAM": "runs a program", "RESULT": "runs a program", "RUN": "runs a program",
	"SYSCTL": "tests the machine, not the device", "TEST": "tests files", "WAIT_FOR": "waits for files",
}
