// Command dra-kubelet-plugin prepares ResourceClaims for Akri's devices on a node.
package main

import (
	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	drakubeletplugin "akri.sh/services/dra-kubelet-plugin"
	"akri.sh/services/dra-kubelet-plugin/relay"
)

func main() {
	if service.Called(relay.Name) {
		service.Main("dra-kubelet-plugin "+relay.Name, relay.Description, relay.New)
		return
	}
	service.Main("dra-kubelet-plugin",
		"Prepares ResourceClaims for the devices of a node. The argument relay runs the relay between it and the kubelet.",
		tracing.Service("dra-kubelet-plugin", drakubeletplugin.New))
}
