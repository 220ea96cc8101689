// Command dra-kubelet-plugin prepares ResourceClaims for Akri's devices on a node.
package main

import (
	"akri.sh/libs/service"
	drakubeletplugin "akri.sh/services/dra-kubelet-plugin"
)

func main() {
	service.Main("dra-kubelet-plugin",
		"Prepares ResourceClaims for the devices of a node.",
		drakubeletplugin.New)
}
