package allocator_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	allocator "akri.sh/services/config-plugin-allocator"
)

func TestFlags(t *testing.T) { flagstest.Check[allocator.Config](t) }
