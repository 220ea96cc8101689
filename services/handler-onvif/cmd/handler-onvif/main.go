// Command handler-onvif discovers ONVIF cameras.
package main

import (
	"context"

	"akri.sh/libs/service"
	onvif "akri.sh/services/handler-onvif"
)

func main() {
	service.Main("handler-onvif", "Discovers ONVIF cameras.",
		func(ctx context.Context, config onvif.Config, env service.Env) error {
			s, err := onvif.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
