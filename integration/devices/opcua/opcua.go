// Package opcua runs OPC UA servers and discovery servers that nobody here wrote: those of the npm package node-opcua.
package opcua

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/devices/node"
)

// Config of a server.
type Config struct {
	Port int    `json:"port"`
	URI  string `json:"uri,omitempty"`
	Name string `json:"name,omitempty"`
	// Type is Server or ClientServer; empty: Server.
	Type string `json:"type,omitempty"`
	// Hostname that it announces; empty: that of the machine.
	Hostname string `json:"hostname,omitempty"`
	// Path of its URL; empty: /UA/Test.
	Path string `json:"path,omitempty"`
	// Register is the URL of the discovery server that it registers with; empty: none.
	Register string `json:"register,omitempty"`
	// Discovery: it is a discovery server.
	Discovery bool `json:"discovery,omitempty"`
	// Command prepares the program, to run it somewhere else; nil: on this machine.
	Command func(ctx context.Context, name string, args ...string) (*exec.Cmd, error) `json:"-"`
}

// Start runs a server and returns when it answers, and is registered.
func Start(ctx context.Context, config Config) (*node.Program, error) {
	root, err := binaries.Root()
	if err != nil {
		return nil, err
	}
	source := filepath.Join(root, "integration", "devices", "opcua")
	modules, err := node.Modules(ctx, source)
	if err != nil {
		return nil, err
	}
	wanted, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode config: %w", err)
	}
	if config.Command == nil {
		config.Command = func(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
			return exec.CommandContext(ctx, name, args...), nil
		}
	}
	command, err := config.Command(ctx, "node", filepath.Join(source, "server.cjs"), string(wanted))
	if err != nil {
		return nil, err
	}
	program, err := node.StartCommand(command, modules)
	if err != nil {
		return nil, err
	}
	if _, err := program.Await(ctx, "ready"); err != nil {
		program.Stop()
		return nil, err
	}
	return program, nil
}
