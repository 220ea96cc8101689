// Command instance-writer writes Instances and Configuration status.
package main

import (
	"context"

	"akri.sh/libs/service"
	instancewriter "akri.sh/services/instance-writer"
)

func main() {
	service.Main("instance-writer", "Writes Instances and Configuration status from the reports of the nodes.",
		func(ctx context.Context, config instancewriter.Config, env service.Env) error {
			writer, err := instancewriter.New(config, env)
			if err != nil {
				return err
			}
			return writer.Run(ctx)
		})
}
