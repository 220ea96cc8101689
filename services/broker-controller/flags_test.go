package brokercontroller_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	brokercontroller "akri.sh/services/broker-controller"
)

func TestFlags(t *testing.T) { flagstest.Check[brokercontroller.Config](t) }
