// Command handler-debug-echo discovers fake devices.
package main

import (
	"context"

	"akri.sh/libs/service"
	debugecho "akri.sh/services/handler-debug-echo"
)

func main() {
	service.Main("handler-debug-echo", "Discovers fake devices that a Configuration lists, for tests and demos.",
		func(ctx context.Context, config debugecho.Config, env service.Env) error {
			s, err := debugecho.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
