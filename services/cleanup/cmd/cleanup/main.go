// Command cleanup deletes the objects that Akri created in a cluster.
package main

import (
	"akri.sh/libs/service"
	"akri.sh/services/cleanup"
)

func main() {
	service.Main("cleanup",
		"Deletes the objects that Akri created in a cluster, after its services have been uninstalled.",
		cleanup.New)
}
