package udev_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	udev "akri.sh/services/handler-udev"
)

func TestFlags(t *testing.T) { flagstest.Check[udev.Config](t) }
