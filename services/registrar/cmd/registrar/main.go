// Command registrar keeps the node's table of Discovery Handlers.
package main

import (
	"akri.sh/libs/service"
	"akri.sh/services/registrar"
)

func main() {
	service.Main("registrar", "Keeps the node's table of Discovery Handlers and their status.", registrar.New)
}
