// Device-plugin-host advertises a node's devices to its kubelet as extended resources.
package main

import (
	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	devicepluginhost "akri.sh/services/device-plugin-host"
)

func main() {
	service.Main("device-plugin-host",
		"Advertises a node's devices to its kubelet as extended resources.",
		tracing.Service("device-plugin-host", devicepluginhost.New))
}
