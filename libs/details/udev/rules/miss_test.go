package rules_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"akri.sh/libs/details/udev/rules"
)

// miss is what a test compares of a rules.Miss with one mismatch.
type miss struct {
	met              []string
	missed           string
	wanted, found    string
	exists           bool
	left             int
	selective, close bool
}

func missOf(m rules.Miss) miss {
	result := miss{met: m.Met, left: len(m.Missed), selective: m.Selective, close: m.Related()}
	if len(m.Missed) > 0 {
		first := m.Missed[0]
		result.missed, result.wanted, result.found, result.exists = first.Key, first.Wanted, first.Found, first.Exists
	}
	return result
}

func TestMiss(t *testing.T) {
	const kernel, vendor = `KERNEL=="video*"`, `ATTRS{idVendor}=="1234"`
	for rule, want := range map[string]miss{
		kernel:                     {met: []string{kernel}, selective: true, close: true},
		kernel + "," + vendor:      {[]string{kernel}, vendor, "1234", "046d", true, 1, true, true},
		vendor + " , " + kernel:    {[]string{kernel}, vendor, "1234", "046d", true, 1, true, true},
		`KERNEL=="card*"`:          {nil, `KERNEL=="card*"`, "card*", "video0", true, 1, false, false}, // every device has a name
		`ATTR{index}=="7"`:         {nil, `ATTR{index}=="7"`, "7", "0", true, 1, false, true},
		`ATTR{none}=="7"`:          {nil, `ATTR{none}=="7"`, "7", "", false, 1, false, false},
		`ENV{ID_MODEL}=="x"`:       {nil, `ENV{ID_MODEL}=="x"`, "x", "a,b(c)=@#'+", true, 1, false, true},
		`DRIVER=="x", TAG=="y"`:    {nil, `DRIVER=="x"`, "x", "", false, 2, false, false},
		`TAG=="y", DRIVER=="x"`:    {nil, `TAG=="y"`, "y", "seat, uaccess", true, 2, false, false},
		`DRIVER!="x", KERNEL=="y"`: {[]string{`DRIVER!="x"`}, `KERNEL=="y"`, "y", "video0", true, 1, false, false},
		`KERNEL == "y", ` + kernel: {[]string{kernel}, `KERNEL == "y"`, "y", "video0", true, 1, true, true},
		// all plural keys are of one ancestor
		`ATTRS{product}=="W*",` + kernel + `,ATTRS{idVendor}=="1d6b"`: {
			[]string{`ATTRS{product}=="W*"`, kernel}, `ATTRS{idVendor}=="1d6b"`, "1d6b", "046d", true, 1, true, true},
		`ATTRS{idVendor}=="1d6b", ATTRS{product}=="H*", DRIVERS=="x"`: {
			[]string{`ATTRS{idVendor}=="1d6b"`, `ATTRS{product}=="H*"`}, `DRIVERS=="x"`, "x", "usb", true, 1, true, true},
		// the ancestor with the closest value
		`ATTRS{idVendor}=="1d6c"`: {nil, `ATTRS{idVendor}=="1d6c"`, "1d6c", "1d6b", true, 1, false, true},
		`KERNELS=="1-1.3"`:        {nil, `KERNELS=="1-1.3"`, "1-1.3", "1-1.2", true, 1, false, true},
	} {
		parsed, err := rules.Parse(rule)
		require.NoError(t, err, rule)
		got := parsed.Miss(camera())
		require.Equal(t, want, missOf(got), rule)
		require.Equal(t, parsed.Matches(camera()), len(got.Missed) == 0, rule)
	}
}

// The values of keys with a mistake are corrected, and only them.
func TestCorrectedValues(t *testing.T) {
	for rule, want := range map[string]struct {
		corrected, kind string
		distance        int
	}{
		`KERNEL=="vido*"`:                     {`KERNEL=="video*"`, `KERNEL=="video*"`, 1},
		`KERNEL=="vidoe*"`:                    {`KERNEL=="video*"`, `KERNEL=="video*"`, 1},
		`KERNEL=="VIDEO?"`:                    {`KERNEL=="video?"`, `KERNEL=="video?"`, 1},
		`KERNEL=="video"`:                     {`KERNEL=="video*"`, `KERNEL=="video*"`, 1}, // the number is missing
		`KERNEL=="video1"`:                    {`KERNEL=="video0"`, `KERNEL=="video#"`, 1},
		`KERNEL=="video[1-9]*"`:               {`KERNEL=="video0*"`, `KERNEL=="video#*"`, 1},
		`KERNEL=="audio[0-9]|vide[0-9]"`:      {`KERNEL=="audio[0-9]|video[0-9]"`, `KERNEL=="audio[#-#]|video[#-#]"`, 1},
		`SUBSYSTEM=="video4linuxx"`:           {`SUBSYSTEM=="video4linux"`, `SUBSYSTEM=="video4linux"`, 1},
		`SUBSYSTEM == "Video4Linux"`:          {`SUBSYSTEM=="video4linux"`, `SUBSYSTEM=="video4linux"`, 1},
		`ATTR{name}=="C271"`:                  {`ATTR{name}=="C270"`, `ATTR{name}=="C270"`, 1},
		`ATTRS{idVendor}=="046e"`:             {`ATTRS{idVendor}=="046d"`, `ATTRS{idVendor}=="046d"`, 1},
		`ATTRS{idVendor}=="0x046d"`:           {`ATTRS{idVendor}=="046d"`, `ATTRS{idVendor}=="046d"`, 2},
		`ATTRS{product}=="Webcam (C270)*"`:    {"", "", 0},
		`ATTRS{product}=="Webcam C270,*"`:     {`ATTRS{product}=="Webcam (C270),*"`, `ATTRS{product}=="Webcam (C270),*"`, 2},
		`ENV{ID_MODEL}=="a,b(d)=@#'+"`:        {`ENV{ID_MODEL}=="a,b(c)=@#'+"`, `ENV{ID_MODEL}=="a,b(c)=@#'+"`, 1},
		`ENV{ID_V4L_CAPABILITIES}=="capture"`: {`ENV{ID_V4L_CAPABILITIES}==":capture:"`, `ENV{ID_V4L_CAPABILITIES}==":capture:"`, 2},
		`TAG=="uacces"`:                       {`TAG=="uaccess"`, `TAG=="uaccess"`, 1},
		`TAG=="seet"`:                         {`TAG=="seat"`, `TAG=="seat"`, 1},
		`KERNEL=="v|videos"`:                  {`KERNEL=="v|video0"`, `KERNEL=="v|video#"`, 1}, // not the shorter one
		`DRIVERS=="uvc-video"`:                {`DRIVERS=="uvcvideo"`, `DRIVERS=="uvcvideo"`, 1},
		`DEVPATH=="/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1.2/1-1.2:1.0/video4linux/video0"`: {
			`DEVPATH=="/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1.2/1-1.2:1.0/video4linux/video0"`,
			`DEVPATH=="/devices/pci#:#/#:#:#.#/usb#/#-#/#-#.#/#-#.#:#.#/video#linux/video#"`, 4},
		`DEVPATH=="/device/*/video0"`: {`DEVPATH=="/devices/*/video0"`, `DEVPATH=="/devices/*/video#"`, 1},
		`KERNEL=="sound*"`:            {"", "", 0}, // nothing similar
		`KERNEL!="video0"`:            {"", "", 0}, // the user excludes the device
		`ATTR{none}=="x"`:             {"", "", 0},
	} {
		parsed, err := rules.Parse(rule)
		require.NoError(t, err, rule)
		got := parsed.Miss(camera())
		if want.corrected == "" {
			if len(got.Missed) > 0 {
				require.Empty(t, got.Missed[0].Corrected, rule)
			}
			continue
		}
		require.Len(t, got.Missed, 1, rule)
		mismatch := got.Missed[0]
		require.Equal(t, want.corrected, mismatch.Corrected, rule)
		require.Equal(t, want.kind, mismatch.Kind, rule)
		require.Equal(t, want.distance, mismatch.Distance, rule)
		requireMatches(t, parsed, got)
	}
}

// requireMatches checks that the corrected rules match the camera, and returns them.
func requireMatches(t *testing.T, rule rules.Rule, miss rules.Miss) []string {
	t.Helper()
	corrections := rule.Corrections(miss)
	require.NotEmpty(t, corrections)
	for _, text := range corrections {
		corrected, err := rules.Parse(text)
		require.NoError(t, err, text)
		require.True(t, corrected.Matches(camera()), text)
	}
	return corrections
}

// Characters that are wildcards, and those that a rule cannot have.
func TestSpecialCharactersOfValues(t *testing.T) {
	for value, want := range map[string]string{
		"a*bcde": "a?bcd?", "a[bcde": "a?bcd?", `a\bcde`: "a?bcd?", "a|bcde": "a?bcd?", "a\x01bcde": "a?bcd?", "a\xffbcde": "a?bcd?", `a"bcde`: `a\"bcd?`,
	} {
		parsed, err := rules.Parse(`ENV{X}=="abcd?"`)
		require.NoError(t, err)
		got := parsed.Miss(&device{properties: map[string]string{"X": value}})
		require.Equal(t, `ENV{X}=="`+want+`"`, got.Missed[0].Corrected)
		corrected, err := rules.Parse(got.Missed[0].Corrected)
		require.NoError(t, err)
		require.True(t, corrected.Matches(&device{properties: map[string]string{"X": value}}), want)
	}
}

// Only the keys with a mistake change, also several of them.
func TestCorrectedRules(t *testing.T) {
	for text, want := range map[string][]string{
		`SUBSYSTEM=="video4linux" ,  KERNEL=="vido*"`:          {`SUBSYSTEM=="video4linux" ,  KERNEL=="video*"`},
		`KERNEL=="vido*",SUBSYSTEM=="vidoe4linux",TAG!="x"`:    {`KERNEL=="video*",SUBSYSTEM=="video4linux",TAG!="x"`},
		`KERNEL=="vido", SUBSYSTEM=="vidoe4linux"`:             {`KERNEL=="video*", SUBSYSTEM=="video4linux"`, `KERNEL=="video0", SUBSYSTEM=="video4linux"`},
		`ATTRS{idVendor}=="046d", KERNEL=="vido0"`:             {`ATTRS{idVendor}=="046d", KERNEL=="video0"`},
		`ATTRS{idVendor}=="046e", ATTRS{idProduct}=="0824"`:    {`ATTRS{idVendor}=="046d", ATTRS{idProduct}=="0825"`},
		`KERNEL=="vido*", KERNEL!="video0"`:                    nil,
		`SUBSYSTEM=="video4linux", ATTR{idVendor}=="no match"`: nil,
	} {
		parsed, err := rules.Parse(text)
		require.NoError(t, err, text)
		got := parsed.Miss(camera())
		if want == nil {
			require.Empty(t, parsed.Corrections(got))
			continue
		}
		require.Equal(t, want, requireMatches(t, parsed, got))
	}
}

// A key whose value another key has gets the name of that key.
func TestOtherwise(t *testing.T) {
	c := camera()
	for text, want := range map[string]string{
		`ATTR{idVendor}=="046d"`:    `ATTRS{idVendor}=="046d"`, // of an ancestor
		`DRIVER=="uvcvideo"`:        `DRIVERS=="uvcvideo"`,
		`SUBSYSTEM=="usb"`:          `SUBSYSTEMS=="usb"`,
		`TAG=="camera"`:             `TAGS=="camera"`,
		`ATTR{Index}=="0"`:          `ATTR{index}=="0"`, // another name
		`ATTRS{idvendor}=="046d"`:   `ATTRS{idVendor}=="046d"`,
		`ATTR{idVender}=="046d"`:    `ATTRS{idVendor}=="046d"`,
		`ENV{id_model}=="a*"`:       `ENV{ID_MODEL}=="a*"`,
		`ATTR{ID_MODEL}=="a*"`:      `ENV{ID_MODEL}=="a*"`, // another field
		`ENV{idVendor}=="046d"`:     `ATTRS{idVendor}=="046d"`,
		`KERNEL=="video4linux"`:     `SUBSYSTEM=="video4linux"`,
		`SUBSYSTEM=="video0"`:       `KERNEL=="video0"`,
		`KERNEL=="/dev/video0"`:     `ENV{DEVNAME}=="/dev/video0"`,
		`ENV{DEVNAME}=="video0"`:    `KERNEL=="video0"`,
		`SUBSYSTEM=="uvcvideo"`:     `DRIVERS=="uvcvideo"`,
		`KERNEL=="front|door"`:      `ENV{DEVNAME}=="/dev/front|/dev/door"`, // the device node has another name
		`SUBSYSTEM!="video4linux"`:  "",                                     // the user excludes the device
		`KERNEL=="card0"`:           "",
		`ATTR{index}=="video0"`:     "", // the device has the attribute
		`ATTR{none}=="video0"`:      "",
		`ENV{NONE}=="?*"`:           "", // matches anything
		`ATTRS{idVendor}=="absent"`: "",
	} {
		c.properties["DEVNAME"] = "/dev/video0"
		if strings.Contains(text, "door") {
			c.properties["DEVNAME"] = "/dev/door"
		}
		parsed, err := rules.Parse(text)
		require.NoError(t, err, text)
		miss := parsed.Miss(c)
		got := parsed.Otherwise(miss, c)
		require.Equal(t, want, got.Missed[0].Corrected, text)
		require.Empty(t, miss.Missed[0].Corrected, "%s: the miss must not change", text)
		require.Equal(t, want != "", got.Distance() < miss.Distance(), text)
	}
}

// Devices with similar values come first, then those with values that differ less.
func TestOrder(t *testing.T) {
	for _, test := range []struct{ rule, closer, farther string }{
		{`KERNEL=="zrm*"`, "zram0", "loop0"},
		{`KERNEL=="zrm*|abcdefghijklmnop"`, "zram0", "zero"}, // the length of the other alternative does not matter
		{`KERNEL=="abcdef|abcdefghijklmnop"`, "abcxyz", "uvwxyz"},
		{`KERNEL=="zram10"`, "zram0", "zram3"},
		{`KERNEL=="x"`, "video0", ""},
		{`KERNEL!="x"`, "video0", "x"},
	} {
		parsed, err := rules.Parse(test.rule)
		require.NoError(t, err)
		closer, farther := parsed.Miss(&device{kernel: test.closer}), parsed.Miss(&device{kernel: test.farther})
		require.Negative(t, closer.Compare(farther), test.rule)
		require.Positive(t, farther.Compare(closer), test.rule)
	}
}

func TestRuleOfSubsystem(t *testing.T) {
	for text, want := range map[string]string{
		`KERNEL=="a"`:                      `KERNEL=="a", SUBSYSTEM=="block"`,
		`KERNEL=="a", SUBSYSTEMS=="usb"`:   `KERNEL=="a", SUBSYSTEMS=="usb", SUBSYSTEM=="block"`,
		`SUBSYSTEM!="tty",KERNEL=="a"`:     "",
		`SUBSYSTEM=="block", KERNEL=="a" `: "",
	} {
		parsed, err := rules.Parse(text)
		require.NoError(t, err)
		got, ok := parsed.Of("block")
		require.Equal(t, want, got)
		require.Equal(t, want != "", ok)
	}
}

// The corrected rule of a name with one or two mistakes matches the device.
func TestCorrectionsMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := camera()
		d.kernel = rapid.StringMatching(`[a-z]{4,8}[0-9]{0,2}`).Draw(t, "kernel")
		text, mistakes := []rune(d.kernel), rapid.IntRange(1, 2).Draw(t, "mistakes")
		if rapid.Bool().Draw(t, "glob") {
			text, mistakes = []rune(d.kernel[:4]+"*"), 1
		}
		for range mistakes {
			text[rapid.IntRange(0, 1).Draw(t, "position")] = rapid.RuneFrom([]rune("aexZ_")).Draw(t, "character")
		}
		parsed, err := rules.Parse(`SUBSYSTEM=="video4linux", KERNEL=="` + string(text) + `"`)
		require.NoError(t, err)
		corrections := parsed.Corrections(parsed.Miss(d))
		require.NotEmpty(t, corrections)
		for _, text := range corrections {
			fixed, err := rules.Parse(text)
			require.NoError(t, err)
			require.True(t, fixed.Matches(d), text)
		}
	})
}
