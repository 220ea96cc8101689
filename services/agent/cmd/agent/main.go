// Command agent runs all node services in one process.
package main

import (
	"os"

	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	"akri.sh/services/agent"
	operator "akri.sh/services/discovery-operator"
	"akri.sh/services/dra-kubelet-plugin/relay"
)

func main() {
	if service.Called(relay.Name) {
		service.Main("agent "+relay.Name, relay.Description, relay.New)
		return
	}
	service.Main("agent", "Runs all node services in one process, for small nodes.", tracing.Service("agent", agent.New),
		operator.TryCommand(func(c agent.Config) operator.Config { return c.DiscoveryOperator }, os.Stdin, os.Stdout))
}
