// Command handler-http discovers devices that an HTTP endpoint lists.
package main

import (
	"context"

	"akri.sh/libs/handler"
	"akri.sh/libs/service"

	handlerhttp "akri.sh/deploy/samples/handler-http"
)

func main() {
	service.Main("handler-http", "Discovers devices that an HTTP endpoint lists.",
		func(ctx context.Context, flags handler.Flags, env service.Env) error {
			identity := handler.Identity{Name: "http", Shared: true}
			server, err := handler.New(identity, flags, handler.Poll{List: handlerhttp.List}, env)
			if err != nil {
				return err
			}
			return server.Run(ctx)
		})
}
