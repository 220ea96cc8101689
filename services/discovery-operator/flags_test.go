package operator_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	operator "akri.sh/services/discovery-operator"
)

func TestFlags(t *testing.T) { flagstest.Check[operator.Config](t) }
