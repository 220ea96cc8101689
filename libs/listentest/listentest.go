// Package listentest finds addresses for servers that tests start and restart.
package listentest

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	mu sync.Mutex
	// found are the addresses that this process has returned.
	found = map[string]bool{}
)

// Host returns a loopback address that no other process uses. On 127.0.0.1 another process could
// listen on a free port, or connect from it, before a server that is started later listens there.
func Host() string {
	pid := os.Getpid() // at most 22 bits
	return net.IPv4(127, byte(pid>>16), byte(pid>>8), byte(pid)).String()
}

// Find returns a TCP address that is free until a server listens on it, and again after the server
// has ended.
func Find() (string, error) {
	mu.Lock()
	defer mu.Unlock()
	for {
		listener, err := net.Listen("tcp", net.JoinHostPort(Host(), "0")) //nolint:noctx // does not wait
		if err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		address := listener.Addr().String()
		if err := listener.Close(); err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		if !found[address] {
			found[address] = true
			return address, nil
		}
	}
}

// Address is Find for a test.
func Address(tb testing.TB) string {
	tb.Helper()
	address, err := Find()
	require.NoError(tb, err)
	return address
}
