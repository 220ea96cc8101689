package agent_test

import (
	"testing"

	"akri.sh/libs/flagstest"
	"akri.sh/services/agent"
)

func TestFlags(t *testing.T) {
	flagstest.Check[agent.Config](t, "registrar-", "discovery-operator-", "device-plugin-host-", "dra-kubelet-plugin-",
		"config-plugin-allocator-", "debug-echo-", "onvif-", "opcua-", "udev-")
}
