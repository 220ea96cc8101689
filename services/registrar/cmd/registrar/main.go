// Command registrar keeps the node's table of Discovery Handlers.
package main

import (
	"context"

	"akri.sh/libs/service"
	"akri.sh/services/registrar"
)

func main() {
	service.Main("registrar", "Keeps the node's table of Discovery Handlers and their status.",
		func(ctx context.Context, config registrar.Config, env service.Env) error {
			s, err := registrar.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
