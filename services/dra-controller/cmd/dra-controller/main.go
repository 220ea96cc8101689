// Command dra-controller publishes devices for Dynamic Resource Allocation.
package main

import (
	"akri.sh/libs/service"
	dracontroller "akri.sh/services/dra-controller"
)

func main() {
	service.Main("dra-controller",
		"Publishes the devices of Instances as ResourceSlices and DeviceClasses.",
		dracontroller.New)
}
