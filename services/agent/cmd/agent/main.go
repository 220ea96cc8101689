// Command agent runs all node services in one process.
package main

import (
	"os"

	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	"akri.sh/services/agent"
	operator "akri.sh/services/discovery-operator"
)

func main() {
	service.Main("agent", "Runs all node services in one process, for small nodes.", tracing.Service("agent", agent.New),
		operator.TryCommand(func(c agent.Config) operator.Config { return c.DiscoveryOperator }, os.Stdin, os.Stdout))
}
