// Device-plugin-host advertises a node's devices to its kubelet as extended resources.
package main

import (
	"context"

	"akri.sh/libs/service"
	devicepluginhost "akri.sh/services/device-plugin-host"
)

func main() {
	service.Main("device-plugin-host", "Advertises a node's devices to its kubelet as extended resources.",
		func(ctx context.Context, config devicepluginhost.Config, env service.Env) error {
			s, err := devicepluginhost.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
