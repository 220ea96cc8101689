// Command discovery-operator discovers the devices of Configurations on a node.
package main

import (
	"os"

	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	operator "akri.sh/services/discovery-operator"
)

func main() {
	service.Main("discovery-operator",
		"Discovers the devices of Configurations with the node's Discovery Handlers.",
		tracing.Service("discovery-operator", operator.New),
		operator.TryCommand(func(c operator.Config) operator.Config { return c }, os.Stdin, os.Stdout))
}
