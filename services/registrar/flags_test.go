package registrar_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	"akri.sh/services/registrar"
)

func TestFlags(t *testing.T) { flagstest.Check[registrar.Config](t) }
