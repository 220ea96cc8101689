// Command akri-bench measures Akri on a real cluster on this machine.
package main

import (
	"context"
	"os"

	"github.com/alecthomas/kong"

	"akri.sh/integration/bench"
	"akri.sh/integration/cmd/internal/command"
)

func main() {
	options := bench.Options{Out: os.Stdout, Progress: os.Stderr}
	command.Run("akri-bench", "Measures Akri on a cluster of two nodes on this machine and prints Markdown. Needs root.", &options,
		func(ctx context.Context, _ *kong.Context) error { return bench.Run(ctx, options) })
}
