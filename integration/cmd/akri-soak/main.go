// Command akri-soak runs Akri on a real cluster on this machine while everything changes and fails.
package main

import (
	"context"
	"math/rand/v2"
	"os"

	"github.com/alecthomas/kong"

	"akri.sh/integration/cmd/internal/command"
	"akri.sh/integration/soak"
)

func main() {
	options := soak.Options{Growth: true, Out: os.Stdout, Progress: os.Stderr}
	command.Run("akri-soak",
		"Changes devices, Configurations and Pods, kills processes, checks invariants and measures growth on a cluster on this machine. Needs root. An interrupt ends the run and prints the table.",
		&options, func(ctx context.Context, _ *kong.Context) error {
			for options.Seed == 0 {
				options.Seed = rand.Uint64()
			}
			return soak.Run(ctx, options)
		})
}
