package instancewriter_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	instancewriter "akri.sh/services/instance-writer"
)

func TestFlags(t *testing.T) { flagstest.Check[instancewriter.Config](t) }
