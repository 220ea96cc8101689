// Command console serves pages that show the devices of the cluster.
package main

import (
	"akri.sh/libs/service"
	"akri.sh/services/console"
)

func main() {
	service.Main("console",
		"Serves pages that show the devices of the cluster and explain why one is missing.",
		console.New)
}
