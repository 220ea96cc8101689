package flags_test

import (
	"io/fs"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/flags"
)

type shared struct {
	NodeName string `help:"Name of this node." required:"" env:"AKRI_NODE_NAME,AGENT_NODE_NAME"`
}

type config struct {
	shared

	Folder   string        `help:"Folder to look in." placeholder:"DIR"`
	PodIP    string        `name:"pod-ip" help:"Address."`
	Interval time.Duration `help:"Pause." default:"5m"`
	Mode     fs.FileMode   `help:"Mode." default:"0o600"`
	Port     uint16        `help:"Port." default:"10000"`
	Most     int           `help:"Most." default:"32"`
	Shared   bool          `help:"Shared." default:"true"`
	Paths    []string      `help:"Paths." default:"/a,/b"`
	Level    string        `help:"Level." enum:"debug,info" default:"info"`
	Handlers []string      `help:"Handlers to run." enum:"udev,onvif"`
	Hook     struct {
		Name string `help:"Name." default:"hook"`
	} `prefix:"hook-"`
	Own func() `flag:"-"`
}

// parse starts from a folder that the program chose.
func parse(arguments ...string) (config, error) {
	c := config{Folder: "/preset"}
	err := flags.New("program", &c).Parse(arguments)
	return c, err
}

func TestDefaults(t *testing.T) {
	c, err := parse("--node-name=a")
	require.NoError(t, err)
	want := config{
		shared: shared{NodeName: "a"}, Folder: "/preset", Interval: 5 * time.Minute, Mode: 0o600, Port: 10000, Most: 32, Shared: true,
		Paths: []string{"/a", "/b"}, Level: "info",
	}
	want.Hook.Name = "hook"
	require.Equal(t, want, c)
}

func TestArgumentsWinOverVariablesAndVariablesOverDefaults(t *testing.T) {
	t.Setenv("AGENT_NODE_NAME", "akri's")
	t.Setenv("AKRI_FOLDER", "")
	t.Setenv("AKRI_POD_IP", "10.0.0.1")
	t.Setenv("AKRI_INTERVAL", "1s")
	t.Setenv("AKRI_SHARED", "false")
	t.Setenv("AKRI_PATHS", "/c,/d")
	t.Setenv("AKRI_HANDLERS", "udev,onvif")
	t.Setenv("AKRI_HOOK_NAME", "mine")
	c, err := parse("--interval=2s", "--mode=0640", "--paths=/e", "--level", "debug")
	require.NoError(t, err)
	want := config{
		shared: shared{NodeName: "akri's"}, PodIP: "10.0.0.1", Interval: 2 * time.Second, Mode: 0o640, Port: 10000, Most: 32,
		Paths: []string{"/e"}, Level: "debug", Handlers: []string{"udev", "onvif"},
	}
	want.Hook.Name = "mine"
	require.Equal(t, want, c)

	t.Setenv("AKRI_NODE_NAME", "ours")
	c, err = parse()
	require.NoError(t, err)
	require.Equal(t, "ours", c.NodeName, "the first name of a variable wins")
	require.Equal(t, []string{"/c", "/d"}, c.Paths)

	t.Setenv("AKRI_HANDLERS", "")
	c, err = parse("--paths=")
	require.NoError(t, err)
	require.Empty(t, c.Handlers, "a list may be empty")
	require.Empty(t, c.Paths)
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for want, arguments := range map[string][]string{
		"--node-name: required, as a flag or as $AKRI_NODE_NAME or $AGENT_NODE_NAME": {},
		"unknown flag: --no-such-flag":   {"--no-such-flag"},
		`"more": want nothing but flags`: {"--node-name=a", "more"},
		`invalid argument "soon" for "--interval" flag: time: invalid duration "soon"`: {"--interval=soon"},
		`invalid argument "loud" for "--level" flag: "loud": want one of debug, info`:  {"--level=loud"},
		`"lamp": want one of udev, onvif`:                                              {"--handlers=udev,lamp"},
	} {
		_, err := parse(arguments...)
		require.ErrorContains(t, err, want)
	}
	t.Setenv("AKRI_PORT", "http")
	_, err := parse("--node-name=a")
	require.ErrorContains(t, err, `invalid value "http" of $AKRI_PORT for --port: strconv.ParseUint: parsing "http": invalid syntax`)
}

func TestHelpNamesFlagsValuesDefaultsAndVariables(t *testing.T) {
	set := flags.New("program", &config{})
	require.ErrorIs(t, set.Parse([]string{"--help"}), pflag.ErrHelp)
	help := set.FlagUsages()
	for _, want := range []string{
		"--folder DIR ", "--interval duration ", "(default 5m)", "--level string ", "One of debug, info.", "[$AKRI_NODE_NAME, $AGENT_NODE_NAME]",
		"--hook-name string", "[$AKRI_HOOK_NAME]", "(default 0o600)",
	} {
		require.Contains(t, help, want)
	}
}

func TestADefaultThatDoesNotParseIsAMistakeOfTheProgram(t *testing.T) {
	require.Panics(t, func() {
		flags.New("program", &struct {
			Port uint16 `help:"Port." default:"http"`
		}{})
	})
	require.Panics(t, func() {
		flags.New("program", &struct {
			Ratio complex128 `help:"Ratio."`
		}{})
	})
}
