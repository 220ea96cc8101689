// Command broker-controller runs the brokers of Configurations.
package main

import (
	"context"

	"akri.sh/libs/service"
	brokercontroller "akri.sh/services/broker-controller"
)

func main() {
	service.Main("broker-controller", "Creates the broker Pods, Jobs and Services of Instances.",
		func(ctx context.Context, c brokercontroller.Config, env service.Env) error {
			s, err := brokercontroller.New(c, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
