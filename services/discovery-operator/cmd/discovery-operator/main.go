// Command discovery-operator discovers the devices of Configurations on a node.
package main

import (
	"context"

	"akri.sh/libs/service"
	operator "akri.sh/services/discovery-operator"
)

func main() {
	service.Main("discovery-operator", "Discovers the devices of Configurations with the node's Discovery Handlers.",
		func(ctx context.Context, config operator.Config, env service.Env) error {
			s, err := operator.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
