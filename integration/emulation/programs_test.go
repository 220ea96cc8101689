package emulation_test

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startTimeout limits the start of a program, which takes a second on an idle machine.
const startTimeout = time.Minute

// run is how a test runs a program that has no flag --version.
type run struct {
	environment, arguments []string
	// output is what the program prints before it ends. A program without output is a server, which
	// listens on serverPort.
	output string
}

// serverPort is the port of the servers, each in a network namespace of its own.
const serverPort = 8083

var runs = map[string]run{
	"sh":            {arguments: []string{"-c", "echo started"}, output: "started"},
	"sample-broker": {},
	"camera-broker": {environment: []string{"RTSP_URL=rtsp://127.0.0.1/", "ALLOW_PLAIN_TEXT=true"}},
	"camera-viewer": {environment: []string{"CAMERAS=localhost", "ALLOW_PLAIN_TEXT=true"}},
	"opcua-broker":  {environment: []string{"OPCUA_DISCOVERY_URL=opc.tcp://127.0.0.1:4840", "NODES=a: ns=1;s=a", "ALLOW_PLAIN_TEXT=true"}},
	"http-broker":   {environment: []string{"HTTP_DEVICE_NAME=a", "HTTP_DEVICE_URL=http://127.0.0.1/"}},
	"http-app":      {arguments: []string{"broker"}},
	"file-server":   {arguments: []string{fmt.Sprintf(":%d", serverPort), "/"}},
}

// TestPrograms starts each program of all images. Services print their version. Brokers and other
// servers have no such flag: they serve.
func TestPrograms(t *testing.T) {
	eachProcessor(t, func(t *testing.T, images map[string]*image) {
		for name, i := range images {
			for _, program := range i.programs {
				t.Run(name+program, func(t *testing.T) { testProgram(t, i, program) })
			}
		}
	})
}

func testProgram(t *testing.T, i *image, program string) {
	name := path.Base(program)
	r, listed := runs[name]
	if !listed {
		r = run{arguments: []string{"--version"}, output: name + " dev"}
	}
	command := i.command(t, r.environment, program, r.arguments...)
	if r.output == "" {
		testServer(t, command)
		return
	}
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Equal(t, r.output, strings.TrimSpace(string(output)))
}

// testServer starts the server, which must listen, and stops it with SIGTERM.
func testServer(t *testing.T, command *exec.Cmd) {
	t.Helper()
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	command.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	require.NoError(t, command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	defer func() { _ = command.Process.Kill() }()

	require.NoError(t, awaitListening(command.Process.Pid, ended))
	require.NoError(t, command.Process.Signal(syscall.SIGTERM))
	<-ended
	t.Log(output.String())
}

// awaitListening waits until the process listens on the port, in its network namespace.
func awaitListening(pid int, ended <-chan error) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(startTimeout)
	for {
		if listens(pid) {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the server ended: %w", err)
		case <-timeout:
			return fmt.Errorf("the server does not listen on port %d", serverPort)
		case <-ticker.C:
		}
	}
}

// listens reports whether a socket listens on the port in the network namespace of the process.
func listens(pid int) bool {
	const listening = "0A" // TCP_LISTEN in the kernel's table
	for _, table := range []string{"tcp", "tcp6"} {
		content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line)
			if len(fields) > 3 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", serverPort)) && fields[3] == listening {
				return true
			}
		}
	}
	return false
}
