// Device-plugin-host advertises a node's devices to its kubelet as extended resources.
package main

import (
	"akri.sh/libs/service"
	devicepluginhost "akri.sh/services/device-plugin-host"
)

func main() {
	service.Main("device-plugin-host",
		"Advertises a node's devices to its kubelet as extended resources.",
		devicepluginhost.New)
}
