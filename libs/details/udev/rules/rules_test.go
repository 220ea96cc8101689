package rules_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/details/udev/rules"
)

// device implements the methods of rules.Device that rules use.
type device struct {
	rules.Device

	devpath, kernel, subsystem, driver string
	attributes, properties             map[string]string
	tags                               []string
	parent                             *device
}

func (d *device) Devpath() string             { return d.devpath }
func (d *device) Kernel() string              { return d.kernel }
func (d *device) Subsystem() string           { return d.subsystem }
func (d *device) Driver() string              { return d.driver }
func (d *device) Property(name string) string { return d.properties[name] }
func (d *device) Tags() []string              { return d.tags }
func (d *device) Attributes() []string        { return slices.Sorted(maps.Keys(d.attributes)) }
func (d *device) Properties() []string        { return slices.Sorted(maps.Keys(d.properties)) }

func (d *device) Attribute(name string) (string, bool) {
	value, ok := d.attributes[name]
	return value, ok
}

func (d *device) Parent() rules.Device {
	if d.parent == nil {
		return nil
	}
	return d.parent
}

// camera returns a video device of a USB camera behind a hub.
func camera() *device {
	hub := &device{
		devpath: "/devices/pci0000:00/0000:00:14.0/usb1/1-1", kernel: "1-1", subsystem: "usb", driver: "usb",
		attributes: map[string]string{"idVendor": "1d6b", "product": "Hub"},
	}
	body := &device{
		devpath: hub.devpath + "/1-1.2", kernel: "1-1.2", subsystem: "usb", driver: "usb", parent: hub,
		attributes: map[string]string{"idVendor": "046d", "idProduct": "0825", "product": "Webcam (C270), black & white \t", "serial": ""},
		tags:       []string{"camera"},
	}
	function := &device{
		devpath: body.devpath + "/1-1.2:1.0", kernel: "1-1.2:1.0", subsystem: "usb", driver: "uvcvideo", parent: body,
		attributes: map[string]string{"bInterfaceClass": "0e"},
	}
	return &device{
		devpath: function.devpath + "/video4linux/video0", kernel: "video0", subsystem: "video4linux", parent: function,
		attributes: map[string]string{"name": "C270", "index": "0"},
		properties: map[string]string{"ID_V4L_CAPABILITIES": ":capture:", "ID_MODEL": "a,b(c)=@#'+"},
		tags:       []string{"seat", "uaccess"},
	}
}

func TestRulesMatchLikeUdev(t *testing.T) {
	for rule, want := range map[string]bool{
		// all keys
		`KERNEL=="video0"`:                                  true,
		`KERNEL!="video0"`:                                  false,
		`SUBSYSTEM=="video4linux"`:                          true,
		`SUBSYSTEM!="block"`:                                true,
		`DEVPATH=="/devices/pci*/video0"`:                   true,
		`DEVPATH=="/devices/*/1-1"`:                         false,
		`ATTR{name}=="C270"`:                                true,
		`ATTR{name}!="C270"`:                                false,
		`ENV{ID_V4L_CAPABILITIES}=="*:capture:*"`:           true,
		`ENV{ID_V4L_CAPABILITIES}!="*:capture:*"`:           false,
		`TAG=="uaccess"`:                                    true,
		`TAG!="uaccess"`:                                    false,
		`TAG!="camera"`:                                     true,
		`DRIVER==""`:                                        true,
		`KERNELS=="1-1.2"`:                                  true,
		`SUBSYSTEMS=="usb"`:                                 true,
		`DRIVERS=="uvcvideo"`:                               true,
		`ATTRS{idVendor}=="046d"`:                           true,
		`TAGS=="camera"`:                                    true,
		`TAGS=="absent"`:                                    false,
		`SUBSYSTEM=="video4linux",KERNEL=="video*"`:         true,
		"  SUBSYSTEM == \"video4linux\" ,\n KERNEL==\"v*\"": true,

		// missing values
		`DRIVER=="usb"`:       false,
		`DRIVER!="usb"`:       true,
		`ENV{NOTHING}==""`:    true,
		`ENV{NOTHING}!="x"`:   true,
		`ENV{NOTHING}=="?*"`:  false,
		`ATTR{nothing}==""`:   false,
		`ATTR{nothing}!="x"`:  false,
		`ATTRS{serial}==""`:   true,
		`ATTRS{nothing}!="x"`: false,

		// plural keys match the device itself or the same ancestor
		`SUBSYSTEMS=="video4linux"`:                             true,
		`ATTRS{idVendor}=="046d", ATTRS{idProduct}=="0825"`:     true,
		`ATTRS{idVendor}=="1d6b", ATTRS{idProduct}=="0825"`:     false,
		`ATTRS{idVendor}=="046d", ATTRS{idProduct}!="c52b"`:     true,
		`ATTRS{idVendor}=="046d", ATTRS{idProduct}!="0825"`:     false,
		`SUBSYSTEMS=="usb", DRIVERS=="uvcvideo"`:                true,
		`KERNELS=="1-1", DRIVERS=="uvcvideo"`:                   false,
		`SUBSYSTEMS!="video4linux"`:                             true,
		`ATTR{index}=="0", ATTRS{idVendor}=="046d", TAG=="se*"`: true,

		// globs and alternatives
		`KERNEL=="video[0-9]"`:    true,
		`KERNEL=="video[!0-3]"`:   false,
		`KERNEL=="vide?0"`:        true,
		`KERNEL=="audio*|video*"`: true,
		`KERNEL!="audio*|video*"`: false,
		`KERNEL=="ideo"`:          false,
		`KERNEL=="video"`:         false,
		`ENV{NOTHING}=="x|"`:      true,
		`DRIVER=="usb|"`:          true,

		// special characters, and trailing white space of attributes
		`ENV{ID_MODEL}=="a,b(c)=@#'+"`:                    true,
		`ATTRS{product}=="Webcam (C270), black & white"`:  true,
		`ATTRS{product}=="Webcam (C270), black & white "`: false,
		"ATTRS{product}==\"*white ?\"":                    false,
	} {
		parsed, err := rules.Parse(rule)
		require.NoError(t, err, rule)
		require.Equal(t, want, parsed.Matches(camera()), rule)
	}
}

func TestCommonRulesAreAccepted(t *testing.T) {
	for _, rule := range []string{
		`KERNEL=="video[0-9]*"`,
		`KERNEL=="card[0-9]*", SUBSYSTEM=="sound"`,
		`SUBSYSTEM=="video4linux", ENV{ID_V4L_CAPABILITIES}=="*:capture:*"`,
		`SUBSYSTEM=="usb", ATTR{idVendor}=="1d6b", ATTR{idProduct}=="0002", ENV{DEVTYPE}=="usb_device"`,
		`ATTRS{idVendor}=="0403", ATTRS{idProduct}=="6001|6010|6014", ATTRS{serial}!="A[5-7]??????", SUBSYSTEM=="tty"`,
		`DRIVERS=="xhci_hcd", SUBSYSTEMS=="pci", KERNELS=="0000:00:14.0"`,
		`DEVPATH=="/devices/pci0000:00/0000:00:1f.2/*/block/sd[a-z]"`,
		`DRIVER!="vfio-pci", SUBSYSTEM=="pci", ATTR{class}=="0x0300??"`,
		`TAG=="systemd", TAGS!="seat"`,
		`ENV{ID_BUS}!="ata", ENV{ID_SERIAL}=="Samsung_SSD_970_EVO_1TB-0:0", KERNEL=="nvme?n?"`,
		`ATTR{queue/rotational}=="0" , ATTR{size}!="0" , SUBSYSTEM=="block"`,
		`ENV{ID_PATH}=="pci-0000:00:14.0-usb-0:2:1.0 $name %k {a}\x20/"`,
	} {
		_, err := rules.Parse(rule)
		require.NoError(t, err, rule)
	}
}

func TestInvalidRulesAreRejectedWithPosition(t *testing.T) {
	for rule, want := range map[string]struct {
		position int
		reason   string
	}{
		``:                             {1, "empty rule"},
		`   `:                          {4, "empty rule"},
		`ACTION=="add"`:                {1, "key ACTION is not supported"},
		`KERNEL=="a", LABEL="end"`:     {14, "key LABEL is not supported"},
		`GOTO="end"`:                   {1, "key GOTO is not supported"},
		`GROUP="video"`:                {1, "key GROUP is not supported"},
		`IMPORT{program}="x"`:          {1, "key IMPORT is not supported"},
		`OPTIONS+="watch"`:             {1, "key OPTIONS is not supported"},
		`OWNER="root"`:                 {1, "key OWNER is not supported"},
		`KERNEL=="a", MODE="0666"`:     {14, "key MODE is not supported"},
		`RUN{builtin}+="kmod load"`:    {1, "key RUN is not supported"},
		`WAIT_FOR="x"`:                 {1, "key WAIT_FOR is not supported"},
		`CONST{arch}=="x86-64"`:        {1, "key CONST is not supported"},
		`NAME=="eth0"`:                 {1, "key NAME is not supported"},
		`PROGRAM=="/bin/true"`:         {1, "key PROGRAM is not supported (runs a program)"},
		`RESULT=="ok"`:                 {1, "key RESULT is not supported"},
		`SECLABEL{selinux}="x"`:        {1, "key SECLABEL is not supported"},
		`SYMLINK=="disk/by-id/*"`:      {1, "key SYMLINK is not supported"},
		`SYSCTL{kernel/hostname}=="x"`: {1, "key SYSCTL is not supported"},
		`TEST{0644}=="x"`:              {1, "key TEST is not supported"},
		`COLOR=="red"`:                 {1, "unknown key COLOR; use one of ATTR{}"},
		`kernel=="a"`:                  {1, "unknown key kernel"},
		`KERNEL="a"`:                   {7, "operator = assigns"},
		`ENV{A}+="a"`:                  {7, "operator += assigns"},
		`ENV{A}-="a"`:                  {7, "operator -= assigns"},
		`ENV{A}:="a"`:                  {7, "operator := assigns"},
		`KERNEL`:                       {7, "expected an operator"},
		`KERNEL~"a"`:                   {7, "expected an operator"},
		`KERNEL==`:                     {9, "double quotes"},
		`KERNEL==a`:                    {9, "double quotes"},
		`KERNEL=="a`:                   {9, "closing double quote"},
		"KERNEL==\"a\nb\"":             {11, "control character"},
		`KERNEL=="a" SUBSYSTEM=="b"`:   {13, "expected a comma"},
		`KERNEL=="a",`:                 {13, "after the comma"},
		`,KERNEL=="a"`:                 {1, "expected a key"},
		`ATTR=="a"`:                    {5, "requires a name in braces"},
		`ATTR{}=="a"`:                  {6, "must not be empty"},
		`ATTR{a=="b"`:                  {6, "closing brace"},
		`KERNEL{a}=="b"`:               {8, "must not have a name in braces"},
		`ATTR{../../secret}=="x"`:      {6, "must be a file inside"},
		`ATTR{/etc/shadow}=="root*"`:   {6, "must be a file inside"},
		`ATTR{[net/eth0]address}=="x"`: {6, "another device"},
		`# KERNEL=="a"`:                {1, "expected a key"},
	} {
		_, err := rules.Parse(rule)
		var syntaxErr *rules.Error
		require.True(t, errors.As(err, &syntaxErr), rule)
		require.Equal(t, want.position, syntaxErr.Position, rule)
		require.Contains(t, syntaxErr.Reason, want.reason, rule)
	}
}

func TestGlobsMatchLikeFnmatch(t *testing.T) {
	for _, test := range []struct {
		glob, text string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "a/b", true}, {"a*b*c", "aXbYbZc", true},
		{"a*b*c", "aXbYbZ", false}, {"?", "", false}, {"?", "é", true}, {"a?c", "a/c", true},
		{"[abc]", "b", true}, {"[a-c]x", "bx", true}, {"[^a-c]", "b", false}, {"[!a-c]", "d", true},
		{"[]]", "]", true}, {"[]-a]", "^", true}, {"[a-]", "-", true}, {"[a", "[a", true}, {"[", "[", true}, {"[!]", "[!]", true},
		{`\*`, "*", true}, {`\*`, "a", false}, {`[\]]`, "]", true},
		{"[[:digit:]]*", "7up", true}, {"[[:alpha:]_]", "_", true}, {"[[:nothing:]]", "a", false},
		{"*.usb-[0-9]", "x.usb-1.usb-2", true},
	} {
		parsed, err := rules.Parse(`KERNEL=="` + test.glob + `"`)
		require.NoError(t, err, test.glob)
		require.Equal(t, test.want, parsed.Matches(&device{kernel: test.text}), "%s on %s", test.glob, test.text)
	}
}

func TestSubsystemBusAndClassAreEqual(t *testing.T) {
	parsed, err := rules.Parse(`SUBSYSTEM=="bus"`)
	require.NoError(t, err)
	require.True(t, parsed.Matches(&device{subsystem: "class"}))
}

func requirePosition(t *testing.T, err error, text string) {
	t.Helper()
	var syntaxErr *rules.Error
	require.True(t, errors.As(err, &syntaxErr))
	require.LessOrEqual(t, syntaxErr.Position, len(text)+1)
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`KERNEL=="video[0-9]*", SUBSYSTEM!="a|b"`, `ATTRS{idVendor}=="046d"`, `ENV{A}=="\"`, `KERNEL=="[[:`, `ATTR{`, `KERNEL=="*?*?*?*"`, "\xff", `RUN+="x"`,
		`KERNEL=="vido0", ATTR{b}=="video0"`,
	} {
		f.Add(seed, "video0")
	}
	f.Fuzz(func(t *testing.T, text, kernel string) {
		parsed, err := rules.Parse(text)
		if err != nil {
			requirePosition(t, err, text)
			return
		}
		d := &device{kernel: kernel, attributes: map[string]string{"a": kernel}, properties: map[string]string{"A": kernel}, tags: []string{kernel}}
		miss := parsed.Miss(d)
		require.Equal(t, parsed.Matches(d), len(miss.Missed) == 0)
		for _, corrected := range parsed.Corrections(parsed.Otherwise(miss, d)) {
			if fixed, err := rules.Parse(corrected); err == nil { // not each value of a device can be written
				_ = fixed.Matches(d)
			}
		}
	})
}
