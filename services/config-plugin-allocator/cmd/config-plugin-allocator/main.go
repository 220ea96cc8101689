// Config-plugin-allocator decides which slot each virtual device of a Configuration-level resource
// gets.
package main

import (
	"context"

	"akri.sh/libs/service"
	allocator "akri.sh/services/config-plugin-allocator"
)

func main() {
	service.Main("config-plugin-allocator", "Decides which slot each virtual device of a Configuration-level resource gets.",
		func(ctx context.Context, config allocator.Config, env service.Env) error {
			s, err := allocator.New(config, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
