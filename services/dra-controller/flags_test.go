package dracontroller_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	dracontroller "akri.sh/services/dra-controller"
)

func TestFlags(t *testing.T) { flagstest.Check[dracontroller.Config](t) }
