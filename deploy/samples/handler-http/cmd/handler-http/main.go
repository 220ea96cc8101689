// Command handler-http discovers devices that an HTTP endpoint lists.
package main

import (
	"akri.sh/libs/handler"
	"akri.sh/libs/service"

	handlerhttp "akri.sh/deploy/samples/handler-http"
)

func main() {
	service.Main("handler-http", "Discovers devices that an HTTP endpoint lists.",
		func(flags handler.Flags, env service.Env) (*handler.Server, error) {
			identity := handler.Identity{Name: "http", Shared: true}
			return handler.New(identity, flags, handler.Poll{List: handlerhttp.List}, env)
		})
}
