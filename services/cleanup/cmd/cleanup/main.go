// Command cleanup removes what Akri made in a cluster.
package main

import (
	"context"

	"akri.sh/libs/service"
	"akri.sh/services/cleanup"
)

func main() {
	service.Main("cleanup", "Removes what Akri made in a cluster, once its services are gone.",
		func(ctx context.Context, config cleanup.Config, env service.Env) error {
			s, err := cleanup.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
