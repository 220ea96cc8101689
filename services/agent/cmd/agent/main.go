// Command agent runs all node services in one process.
package main

import (
	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	"akri.sh/services/agent"
)

func main() {
	service.Main("agent", "Runs all node services in one process, for small nodes.", tracing.Service("agent", agent.New))
}
