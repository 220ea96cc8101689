// Package opcua runs OPC UA servers and discovery servers of the npm package node-opcua, so that
// tests use an independent implementation.
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
	// Type is Server or ClientServer. Empty means Server.
	Type string `json:"type,omitempty"`
	// Hostname that the server announces. Empty means the host name of the machine.
	Hostname string `json:"hostname,omitempty"`
	// Path of the URL. Empty means /UA/Test.
	Path string `json:"path,omitempty"`
	// Register is the URL of the discovery server that the server registers with. Empty means none.
	Register string `json:"register,omitempty"`
	// Discovery selects a discovery server.
	Discovery bool `json:"discovery,omitempty"`
	// Nodes are variables in namespace 2, http://akri.sh/test, by their identifiers.
	Nodes map[string]Node `json:"nodes,omitempty"`
	// Users and their passwords. Empty means anonymous sessions.
	Users map[string]string `json:"users,omitempty"`
	// CertificateFile and PrivateKeyFile are PEM. Empty means a new certificate.
	CertificateFile string `json:"certificateFile,omitempty"`
	PrivateKeyFile  string `json:"privateKeyFile,omitempty"`
	// RejectUnknown makes the server refuse the certificates of all clients.
	RejectUnknown bool `json:"rejectUnknown,omitempty"`
	// Command creates the command, for example to run it in another namespace. Nil means
	// exec.CommandContext.
	Command func(ctx context.Context, name string, args ...string) (*exec.Cmd, error) `json:"-"`
}

// Node is a variable.
type Node struct {
	// Type is a built-in type, such as Double. A value that is a slice is an array.
	Type  string `json:"type"`
	Value any    `json:"value"`
}

// Set sets the value of a node. An empty status means Good.
func Set(server *node.Program, name string, value any, status string) error {
	return server.Send(map[string]any{"node": name, "value": value, "status": status})
}

// Start runs a server. It returns when the server accepts requests and is registered.
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
	encoded, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode config: %w", err)
	}
	if config.Command == nil {
		config.Command = func(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
			return exec.CommandContext(ctx, name, args...), nil
		}
	}
	command, err := config.Command(ctx, "node", filepath.Join(source, "server.cjs"), string(encoded))
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
