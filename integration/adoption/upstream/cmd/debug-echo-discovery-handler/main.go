// Command debug-echo-discovery-handler is a stand-in for the handler debugEcho of upstream Akri
// 0.13.
package main

import (
	"context"
	"os"

	"go.uber.org/zap"

	"akri.sh/integration/adoption/upstream"
)

func main() {
	upstream.Main(func(log *zap.Logger) error {
		handler := &upstream.Handler{
			Name: "debugEcho", Dir: os.Getenv("DISCOVERY_HANDLERS_DIRECTORY"), Shared: os.Getenv("DEBUG_ECHO_INSTANCES_SHARED") == "true",
			List: upstream.Echo("/tmp/debug-echo-availability.txt"), Announces: true, Log: log,
		}
		return handler.Run(context.Background())
	})
}
