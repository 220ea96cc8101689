// Command controller is a stand-in for the controller of upstream Akri 0.13.
package main

import (
	"context"

	"go.uber.org/zap"

	"akri.sh/integration/adoption/upstream"
)

func main() {
	upstream.Main(func(log *zap.Logger) error {
		config, err := upstream.RESTConfig()
		if err != nil {
			return err
		}
		controller, err := upstream.NewController(config, log)
		if err != nil {
			return err
		}
		return controller.Run(context.Background())
	})
}
