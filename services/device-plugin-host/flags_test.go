package devicepluginhost_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	devicepluginhost "akri.sh/services/device-plugin-host"
)

func TestFlags(t *testing.T) { flagstest.Check[devicepluginhost.Config](t) }
