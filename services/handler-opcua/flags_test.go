package opcua_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	opcua "akri.sh/services/handler-opcua"
)

func TestFlags(t *testing.T) { flagstest.Check[opcua.Config](t) }
