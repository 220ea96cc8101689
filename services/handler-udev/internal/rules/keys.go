package rules

// aspect is what of a device a key looks at, the cheapest to learn first.
type aspect int

const (
	devpath aspect = iota
	kernel
	subsystem
	driver
	property
	tag
	attribute
)

// key is one that a rule may use.
type key struct {
	of      aspect
	parents bool
	named   bool // wants a name in braces
}

var keys = map[string]key{
	"ATTR":       {of: attribute, named: true},
	"ATTRS":      {of: attribute, named: true, parents: true},
	"DEVPATH":    {of: devpath},
	"DRIVER":     {of: driver},
	"DRIVERS":    {of: driver, parents: true},
	"ENV":        {of: property, named: true},
	"KERNEL":     {of: kernel},
	"KERNELS":    {of: kernel, parents: true},
	"SUBSYSTEM":  {of: subsystem},
	"SUBSYSTEMS": {of: subsystem, parents: true},
	"TAG":        {of: tag},
	"TAGS":       {of: tag, parents: true},
}

// supported says what a rule may use, for the person whose rule was refused.
const supported = "ATTR{}, ATTRS{}, DEVPATH, DRIVER, DRIVERS, ENV{}, KERNEL, KERNELS, SUBSYSTEM, SUBSYSTEMS, TAG, TAGS"

// foreign are keys of udev that act or test something else than the device: no rule of a Configuration may.
var foreign = map[string]string{
	"ACTION": "events do not select devices", "CONST": "tests the machine, not the device",
	"GOTO": "controls rule files", "LABEL": "controls rule files", "LAST_RULE": "controls rule files",
	"GROUP": "assigns", "IMPORT": "assigns", "MODE": "assigns", "NAME": "assigns", "OPTIONS": "assigns", "OWNER": "assigns",
	"SECLABEL": "assigns", "SYMLINK": "assigns",
	"PROGRAM": "runs a program", "RESULT": "runs a program", "RUN": "runs a program",
	"SYSCTL": "tests the machine, not the device", "TEST": "tests files", "WAIT_FOR": "waits for files",
}
