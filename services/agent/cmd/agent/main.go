// Agent is all that a node runs, in one process.
package main

import (
	"context"

	"akri.sh/libs/service"
	"akri.sh/services/agent"
)

func main() {
	service.Main("agent", "All that a node runs, in one process, for nodes too small for several.",
		func(ctx context.Context, config agent.Config, env service.Env) error {
			s, err := agent.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
