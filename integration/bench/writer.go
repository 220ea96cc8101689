package bench

import (
	"context"

	"akri.sh/integration/simulation"
)

// writer is a running instance-writer without simulated nodes.
type writer struct{ *simulation.Environment }

// startWriter starts an API server and an instance-writer. The nodes are simulated by their
// reports.
func startWriter(ctx context.Context) (*writer, error) {
	environment, err := simulation.New(ctx, simulation.Options{
		Replicas: 1, Progress: func(string, ...any) {},
		Flags: []string{"--connections-per-source=4096"}, // all nodes have one address
	})
	if err != nil {
		return nil, err
	}
	return &writer{environment}, nil
}
