// Config-plugin-allocator decides which slot each virtual device of a Configuration-level resource
// gets.
package main

import (
	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	allocator "akri.sh/services/config-plugin-allocator"
)

func main() {
	service.Main("config-plugin-allocator",
		"Decides which slot each virtual device of a Configuration-level resource gets.",
		tracing.Service("config-plugin-allocator", allocator.New))
}
