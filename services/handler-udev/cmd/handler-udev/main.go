// Command handler-udev is the Discovery Handler for devices of the kernel.
package main

import (
	"akri.sh/libs/service"
	udev "akri.sh/services/handler-udev"
)

func main() {
	service.Main("handler-udev", "Discovers devices of the node's kernel by udev rules.", udev.New)
}
