// Command udev-discovery-handler is a stand-in for the handler udev of upstream Akri 0.13.
package main

import (
	"context"
	"os"

	"go.uber.org/zap"

	"akri.sh/integration/adoption/upstream"
)

func main() {
	upstream.Main(func(log *zap.Logger) error {
		handler := &upstream.Handler{Name: "udev", Dir: os.Getenv("DISCOVERY_HANDLERS_DIRECTORY"), List: upstream.BlockDevices, Log: log}
		return handler.Run(context.Background())
	})
}
