// Command handler-opcua is the Discovery Handler for OPC UA servers.
package main

import (
	"context"

	"akri.sh/libs/service"
	opcua "akri.sh/services/handler-opcua"
)

func main() {
	service.Main("handler-opcua", "Discovers OPC UA servers.",
		func(ctx context.Context, config opcua.Config, env service.Env) error {
			s, err := opcua.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
