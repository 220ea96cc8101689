// Command broker-controller runs the brokers that Configurations ask for.
package main

import (
	"context"

	"akri.sh/libs/service"
	brokercontroller "akri.sh/services/broker-controller"
)

func main() {
	service.Main("broker-controller", "Turns Instances into broker Pods, Jobs and Services.",
		func(ctx context.Context, c brokercontroller.Config, env service.Env) error {
			s, err := brokercontroller.New(c, env)
			if err != nil {
				return err
			}
			return s.Run(ctx)
		})
}
