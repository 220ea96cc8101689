// Command agent runs all node services in one process.
package main

import (
	"context"

	"akri.sh/libs/service"
	"akri.sh/services/agent"
)

func main() {
	service.Main("agent", "Runs all node services in one process, for small nodes.",
		func(ctx context.Context, config agent.Config, env service.Env) error {
			s, err := agent.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
