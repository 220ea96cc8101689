package debugecho_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	debugecho "akri.sh/services/handler-debug-echo"
)

func TestFlags(t *testing.T) { flagstest.Check[debugecho.Config](t) }
