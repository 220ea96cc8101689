// Command instance-writer writes Instances and Configuration status.
package main

import (
	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	instancewriter "akri.sh/services/instance-writer"
)

func main() {
	service.Main("instance-writer", "Writes Instances and Configuration status from the reports of the nodes.",
		tracing.Service("instance-writer", instancewriter.New))
}
