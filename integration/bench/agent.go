package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ofTheNode are the services and handlers that the agent replaces.
var ofTheNode = []string{
	"registrar", "discovery-operator", "device-plugin-host", "config-plugin-allocator", "handler-udev", "handler-debug-echo",
}

// agent measures the agent where the services of `separate` were.
func (b *bench) agent(ctx context.Context, separate []usage) error {
	b.say("installing the agent, and waiting for it to be idle for %s", idleFor)
	if err := b.mesh.Install(ctx, "global.agent.enabled=true"); err != nil {
		return err
	}
	found, err := b.minute(ctx)
	if err != nil {
		return err
	}
	now := found.services
	at := slices.IndexFunc(now, func(u usage) bool { return u.service == "agent" })
	if at < 0 {
		return errors.New("the agent does not run")
	}
	sum := usage{service: "all that a node runs, as services and handlers of their own"}
	for _, used := range separate {
		if slices.Contains(ofTheNode, used.service) {
			sum.resident, sum.private, sum.working = sum.resident+used.resident, sum.private+used.private, sum.working+used.working
			sum.cpu += used.cpu
		}
	}
	b.printUsage("A node, idle", sum, now[at])
	return nil
}

func (b *bench) printUsage(title string, all ...usage) {
	fmt.Fprintf(b.Out, "\n| %s | RSS MiB | of it private MiB | working set MiB | CPU ms/s |\n|---|---|---|---|---|\n", title)
	for _, used := range all {
		fmt.Fprintf(b.Out, "| %s | %.1f | %.1f | %.1f | %.1f |\n", used.service, mib(used.resident), mib(used.private), mib(used.working),
			float64(used.cpu.Milliseconds())/idleFor.Seconds())
	}
}
