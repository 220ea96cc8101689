package cleanup_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	"akri.sh/services/cleanup"
)

func TestFlags(t *testing.T) { flagstest.Check[cleanup.Config](t) }
