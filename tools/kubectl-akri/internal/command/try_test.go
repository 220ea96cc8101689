package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTrialRequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "details.yaml")
	require.NoError(t, os.WriteFile(file, []byte("from: file"), 0o600))
	for _, test := range []struct {
		handler       string
		flags         trialFlags
		details, want string // details or error
	}{
		{"udev", trialFlags{rules: []string{`KERNEL=="a"`, `KERNEL=="b"`}}, "udevRules:\n- KERNEL==\"a\"\n- KERNEL==\"b\"\n", ""},
		{"udev", trialFlags{}, "", "name a rule"},
		{"udev", trialFlags{details: file}, "from: file", ""},
		{"udev", trialFlags{details: "-"}, "from: input", ""},
		{"udev", trialFlags{details: file + "x"}, "", "read details"},
		{"udev", trialFlags{details: file, rules: []string{"x"}}, "", "without --rule"},
		{"onvif", trialFlags{rules: []string{"x"}}, "", "--rule is for the handler udev"},
		{"udev", trialFlags{urls: []string{"x"}}, "", "--url is for the handler opcua"},
		{"onvif", trialFlags{}, "", ""},
		{"opcua", trialFlags{}, "opcuaDiscoveryMethod:\n  standard: {}\n", ""},
		{"opcua", trialFlags{urls: []string{"opc.tcp://a/"}}, "opcuaDiscoveryMethod:\n  standard:\n    discoveryUrls:\n    - opc.tcp://a/\n", ""},
		{"onvif", trialFlags{timeout: time.Hour}, "", "must be more than 0 and at most 5m"},
		{"onvif", trialFlags{timeout: -1}, "", "must be more than 0 and at most 5m"},
	} {
		if test.flags.timeout == 0 {
			test.flags.timeout = defaultTrialTimeout
		}
		request, err := test.flags.request(strings.NewReader("from: input"), test.handler)
		if test.want != "" {
			require.ErrorContains(t, err, test.want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, test.handler, request.Handler)
		require.Equal(t, test.details, request.Details)
	}
}
