package emulation_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/trial"
)

// TestDiscovery runs a registrar, a handler of fake devices, and a discovery-operator that calls
// it.
func TestDiscovery(t *testing.T) {
	eachProcessor(t, func(t *testing.T, images map[string]*image) {
		n := newNode(t, images)
		n.start(t, "registrar", "--handlers-dir="+n.dir, "--socket="+n.registrar, "--state-file="+filepath.Join(n.dir, "state.json"))
		n.start(t, "handler-debug-echo", "--discovery-handlers-directory="+n.dir)
		found := n.try(t, "debugEcho", `descriptions: [one, two]`)
		require.Len(t, found, 2)
		require.Equal(t, "one", found[0].Properties["DEBUG_ECHO_DESCRIPTION"])
	})
}

// node is the services of a node.
type node struct {
	images         map[string]*image
	dir, registrar string
}

func newNode(t *testing.T, images map[string]*image) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "emulation") //nolint:usetesting // paths of sockets must be short
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return &node{images: images, dir: dir, registrar: "unix://" + filepath.Join(dir, "registrar.sock")}
}

// start starts a service until the test ends.
func (n *node) start(t *testing.T, name string, flags ...string) {
	t.Helper()
	command := n.images[name].command(t, nil, "/bin/"+name, append(flags, "--admin-address=")...)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // killed
		if t.Failed() {
			t.Logf("%s logged:\n%s", name, output.String())
		}
	})
}

// try returns the devices that discovery-operator gets from the handler, as soon as the handler has
// registered.
func (n *node) try(t *testing.T, handler, details string) []trial.Device {
	t.Helper()
	request, err := json.Marshal(trial.Request{Handler: handler, Details: details, Timeout: startTimeout})
	require.NoError(t, err)
	for deadline := time.Now().Add(startTimeout); ; {
		result, problem := n.tryOnce(t, request)
		if result != nil && result.Answered {
			require.Empty(t, result.Problems)
			return result.Devices
		}
		require.True(t, time.Now().Before(deadline), "the handler %s is not registered: %+v %s", handler, result, problem)
	}
}

// tryOnce returns no result if the registrar does not serve yet.
func (n *node) tryOnce(t *testing.T, request []byte) (*trial.Result, string) {
	t.Helper()
	command := n.images["discovery-operator"].command(t, nil, "/bin/discovery-operator", "try", "--registrar="+n.registrar, "--node-name=node")
	input, err := command.StdinPipe() // a trial ends with its input
	require.NoError(t, err)
	var output, problem strings.Builder
	command.Stdout, command.Stderr = &output, &problem
	require.NoError(t, command.Start())
	_, err = input.Write(request)
	require.NoError(t, err)
	if command.Wait() != nil {
		return nil, problem.String()
	}
	var result trial.Result
	require.NoError(t, json.Unmarshal([]byte(output.String()), &result))
	return &result, ""
}
