package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// nodeServices are the services and handlers that the agent replaces.
var nodeServices = []string{
	"registrar", "discovery-operator", "device-plugin-host", "config-plugin-allocator", "handler-udev", "handler-debug-echo",
}

// agent measures the agent and compares it with the separate services.
func (b *bench) agent(ctx context.Context, separate []usage) error {
	b.progress("installing the agent and waiting until it is idle for %s", idleDuration)
	if err := b.mesh.Install(ctx, "global.agent.enabled=true"); err != nil {
		return err
	}
	found, err := b.idleMinute(ctx)
	if err != nil {
		return err
	}
	agent := slices.IndexFunc(found.services, func(u usage) bool { return u.service == "agent" })
	if agent < 0 {
		return errors.New("the agent does not run")
	}
	sum := usage{service: "separate services and handlers of a node"}
	for _, used := range separate {
		if slices.Contains(nodeServices, used.service) {
			sum.resident, sum.private, sum.working = sum.resident+used.resident, sum.private+used.private, sum.working+used.working
			sum.cpu += used.cpu
		}
	}
	b.printUsage("Node, idle", sum, found.services[agent])
	return nil
}

func (b *bench) printUsage(title string, all ...usage) {
	fmt.Fprintf(b.Out, "\n| %s | RSS MiB | private MiB | working set MiB | CPU ms/s |\n|---|---|---|---|---|\n", title)
	for _, used := range all {
		fmt.Fprintf(b.Out, "| %s | %.1f | %.1f | %.1f | %.1f |\n", used.service, mib(used.resident), mib(used.private), mib(used.working),
			float64(used.cpu.Milliseconds())/idleDuration.Seconds())
	}
}
