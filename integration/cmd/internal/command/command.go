// Package command has what the commands have in common.
package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Run reads the flags into cli and calls run. The first signal ends the context, a second one kills
// the process. After an error the exit code is 1.
func Run(name, description string, cli any, run func(context.Context, *kong.Context) error, options ...kong.Option) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	options = append(options, kong.Name(name), kong.UsageOnError(), kong.Description(description))
	if err := run(ctx, kong.Parse(cli, options...)); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}
