// Command handler-debug-echo discovers fake devices.
package main

import (
	"akri.sh/libs/service"
	debugecho "akri.sh/services/handler-debug-echo"
)

func main() {
	service.Main("handler-debug-echo",
		"Discovers fake devices that a Configuration lists, for tests and demos.",
		debugecho.New)
}
