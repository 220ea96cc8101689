package flagstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/service"
)

func TestUpdate(t *testing.T) {
	type config struct {
		Kept     string `help:"Not used." default:"new"`
		Required string `help:"Added." required:""`
		PodIP    string `name:"pod-ip" env:"AKRI_POD_IP,POD_IP"`
		Other    string
	}
	flags := described(service.Flags[config](), []string{"other", "admin-", "log-", "version"})
	const head = "## Flags\n\n| Flag | Environment | Default | Meaning |\n|---|---|---|---|\n"
	got := update(t, "# x\n\n"+head+
		"| `--pod-ip` | `POD_IP` | none | address |\n"+
		"| `--removed` | | | removed |\n"+
		"| `--kept` | `AKRI_KEPT` | `old` | `a` or `b` |\n"+
		"| `--<component>-<flag>` | | | group |\n"+
		"\n## Other\n", "Flags", flags)
	require.Equal(t, "# x\n\n"+head+
		"| `--pod-ip` | `AKRI_POD_IP`, `POD_IP` | none | address |\n"+
		"| `--kept` | `AKRI_KEPT` | `new` | `a` or `b` |\n"+
		"| `--<component>-<flag>` | | | group |\n"+
		"| `--required` | `AKRI_REQUIRED` | required | Added. |\n"+
		"\n## Other\n", got)
}
