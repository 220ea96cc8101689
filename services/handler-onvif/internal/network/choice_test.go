package network_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/services/handler-onvif/internal/network"
)

func TestChoice(t *testing.T) {
	for name, test := range map[string]struct {
		patterns []string
		in, out  []string
	}{
		"none: all":              {in: []string{"lo", "eth0"}},
		"names and globs":        {patterns: []string{"eth*", " br0 "}, in: []string{"eth0", "br0"}, out: []string{"lo", "br01"}},
		"all but some":           {patterns: []string{"!lo", "!veth*"}, in: []string{"eth0"}, out: []string{"lo", "veth1"}},
		"some, but not of these": {patterns: []string{"eth*", "!eth1"}, in: []string{"eth0"}, out: []string{"eth1", "lo"}},
	} {
		t.Run(name, func(t *testing.T) {
			choice, err := network.ParseChoice(test.patterns)
			require.NoError(t, err)
			for _, name := range test.in {
				require.True(t, choice.Includes(name), name)
			}
			for _, name := range test.out {
				require.False(t, choice.Includes(name), name)
			}
		})
	}
	for _, pattern := range []string{"", "!", "eth[", "![a"} {
		_, err := network.ParseChoice([]string{"eth0", pattern})
		require.ErrorContains(t, err, "interface pattern")
	}
}
