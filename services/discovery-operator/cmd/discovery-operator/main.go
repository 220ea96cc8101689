// Command discovery-operator asks the node's Discovery Handlers for what Configurations want.
package main

import (
	"context"

	"akri.sh/libs/service"
	operator "akri.sh/services/discovery-operator"
)

func main() {
	service.Main("discovery-operator", "Asks the node's Discovery Handlers for the devices that Configurations want, and keeps the list of them.",
		func(ctx context.Context, config operator.Config, env service.Env) error {
			s, err := operator.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
