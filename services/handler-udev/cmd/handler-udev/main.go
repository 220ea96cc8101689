// Command handler-udev is the Discovery Handler for devices of the kernel.
package main

import (
	"context"

	"akri.sh/libs/service"
	udev "akri.sh/services/handler-udev"
)

func main() {
	service.Main("handler-udev", "Discovers devices of the node's kernel by udev rules.",
		func(ctx context.Context, config udev.Config, env service.Env) error {
			s, err := udev.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
