package multicast_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/services/handler-onvif/internal/multicast"
)

func TestInterfaceFilter(t *testing.T) {
	for name, test := range map[string]struct {
		patterns []string
		in, out  []string
	}{
		"empty":           {in: []string{"lo", "eth0"}},
		"names and globs": {patterns: []string{"eth*", " br0 "}, in: []string{"eth0", "br0"}, out: []string{"lo", "br01"}},
		"excluded globs":  {patterns: []string{"!lo", "!veth*"}, in: []string{"eth0"}, out: []string{"lo", "veth1"}},
		"both":            {patterns: []string{"eth*", "!eth1"}, in: []string{"eth0"}, out: []string{"eth1", "lo"}},
	} {
		t.Run(name, func(t *testing.T) {
			filter, err := multicast.ParseInterfaceFilter(test.patterns)
			require.NoError(t, err)
			for _, name := range test.in {
				require.True(t, filter.Matches(name), name)
			}
			for _, name := range test.out {
				require.False(t, filter.Matches(name), name)
			}
		})
	}
	for _, pattern := range []string{"", "!", "eth[", "![a"} {
		_, err := multicast.ParseInterfaceFilter([]string{"eth0", pattern})
		require.ErrorContains(t, err, "interface pattern")
	}
}
