// Command cleanup deletes the objects that Akri created in a cluster.
package main

import (
	"context"

	"akri.sh/libs/service"
	"akri.sh/services/cleanup"
)

func main() {
	service.Main("cleanup", "Deletes the objects that Akri created in a cluster, after its services have been uninstalled.",
		func(ctx context.Context, config cleanup.Config, env service.Env) error {
			s, err := cleanup.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
