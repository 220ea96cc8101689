package debugecho_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler"
	debugecho "akri.sh/services/handler-debug-echo"
)

func FuzzDetails(f *testing.F) {
	for _, seed := range []string{"descriptions: [foo, bar, foo]", "descriptions: []", "descriptions: [1, ~, {}]", "descriptions: &a [*a]", "{"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, details string) {
		devices, err := debugecho.DevicesOf(handler.Request{Details: details})
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, device := range devices {
			require.NotEmpty(t, device.GetId())
			require.False(t, seen[device.GetId()])
			seen[device.GetId()] = true
		}
	})
}
