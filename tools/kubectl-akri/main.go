// Command kubectl-akri is a plugin of kubectl that shows the devices of Akri and explains why one
// is missing.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"akri.sh/tools/kubectl-akri/internal/command"
	"akri.sh/tools/kubectl-akri/internal/print"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command.New().ExecuteContext(ctx); err != nil {
		stop()
		fmt.Fprintln(print.Escaped(os.Stderr), "error:", err)
		os.Exit(1)
	}
}
