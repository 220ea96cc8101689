package drakubeletplugin_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	drakubeletplugin "akri.sh/services/dra-kubelet-plugin"
)

func TestFlags(t *testing.T) { flagstest.Check[drakubeletplugin.Config](t) }
