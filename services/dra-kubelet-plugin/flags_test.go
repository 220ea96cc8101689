package drakubeletplugin_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	drakubeletplugin "akri.sh/services/dra-kubelet-plugin"
	"akri.sh/services/dra-kubelet-plugin/relay"
)

func TestFlags(t *testing.T) {
	flagstest.Check[drakubeletplugin.Config](t)
	flagstest.CheckSection[relay.Config](t, "README.md", "Flags of the relay")
}
