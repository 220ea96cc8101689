package operator_test

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeNetwork has the handlers at network addresses. A connection to a handler that does not serve
// is refused, one to an address without handler fails.
type fakeNetwork struct {
	mu    sync.Mutex
	hosts map[string]*fakeHandler
}

func (n *fakeNetwork) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	handler := n.hosts[address]
	n.mu.Unlock()
	if handler == nil {
		return nil, syscall.EHOSTUNREACH
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", handler.endpoint)
	if err != nil {
		return nil, syscall.ECONNREFUSED
	}
	return conn, nil
}

// start starts and registers a handler at the address.
func (n *fakeNetwork) start(t *testing.T, h *harness, address string, a answer) (handler *fakeHandler, stop func()) {
	t.Helper()
	handler = newHandler(t)
	handler.respond("d", a)
	stop = handler.serve(t)
	n.mu.Lock()
	n.hosts[address] = handler
	n.mu.Unlock()
	h.registrar.add("foo", address, true)
	return handler, stop
}

func (n *fakeNetwork) remove(addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, address := range addresses {
		delete(n.hosts, address)
	}
}

func list(ids ...string) answer { return answer{ids: ids} }

const first, second, third, fourth = "192.0.2.1:10000", "192.0.2.2:10000", "192.0.2.3:10000", "192.0.2.4:10000"

// startNetwork starts the service with handlers at the first two addresses, with the devices x and
// y.
func startNetwork(t *testing.T) (h *harness, network *fakeNetwork, key string, stop func()) {
	t.Helper()
	h = newHarness(t, forever)
	network = &fakeNetwork{hosts: map[string]*fakeHandler{}}
	h.config.Dial = network.dial
	h.start()
	_, stopFirst := network.start(t, h, first, list("x"))
	_, stopSecond := network.start(t, h, second, list("y"))
	key = h.apply(h.namespace, "network", "foo", "d")
	h.reported(key, true, "x", "y")
	return h, network, key, func() { stopFirst(); stopSecond() }
}

func (h *harness) awaitOffline(addresses ...string) {
	h.t.Helper()
	for _, address := range addresses {
		h.eventually(func() bool { return h.registrar.status(address) == offline }, address+" to be offline")
	}
}

// The devices of an address that no longer exists leave by the list of the handler's new address.
func TestNewAddress(t *testing.T) {
	h, network, key, stop := startNetwork(t)
	network.remove(first, second)
	stop()
	h.awaitOffline(first, second)
	network.start(t, h, third, list("z"))
	h.reported(key, true, "x", "y", "z") // it could be the new address of either
	network.start(t, h, fourth, list("y"))
	require.Empty(t, h.reported(key, true, "y", "z").GetProblems())
	require.Equal(t, offline, h.registrar.status(first))

	network.start(t, h, first, list("back"))
	h.reported(key, true, "back", "y", "z")
}

// The new address may register before the previous one is gone.
func TestNewAddressBeforeLoss(t *testing.T) {
	h, network, key, stop := startNetwork(t)
	network.start(t, h, third, list("x"))
	network.start(t, h, fourth, list())
	h.reported(key, true, "x", "y")
	network.remove(first, second)
	stop()
	h.reported(key, true, "x")
}

// The devices of the previous address stay until the new address has sent a list.
func TestNewAddressWithoutList(t *testing.T) {
	h, network, key, stop := startNetwork(t)
	network.remove(first, second)
	stop()
	h.awaitOffline(first, second)
	network.start(t, h, third, list())
	silent, _ := network.start(t, h, fourth, answer{silent: true})
	h.eventually(func() bool { return silent.openStreams() == 1 }, "a stream")
	h.reported(key, false, "x", "y")
	silent.respond("d", answer{})
	h.reported(key, true)
}

// An address that refuses connections belongs to a handler that restarts.
func TestRefusedAddress(t *testing.T) {
	h, network, key, stop := startNetwork(t)
	stop()
	h.awaitOffline(first, second)
	network.start(t, h, third, list("z"))
	network.start(t, h, fourth, list("last"))
	h.reported(key, true, "x", "y", "z", "last")
	h.neverGone(key, "x")
}
