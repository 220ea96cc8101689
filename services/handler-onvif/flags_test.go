package onvif_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	onvif "akri.sh/services/handler-onvif"
)

func TestFlags(t *testing.T) { flagstest.Check[onvif.Config](t) }
