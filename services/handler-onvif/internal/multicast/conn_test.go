package multicast_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"akri.sh/libs/handler/address"
	"akri.sh/services/handler-onvif/internal/multicast"
)

// namespaceVariable is set in the process that runs in the network namespace.
const namespaceVariable = "AKRI_TEST_NETWORK"

// TestMain runs the tests as root of a new network namespace.
func TestMain(m *testing.M) {
	if os.Getenv(namespaceVariable) != "" {
		os.Exit(m.Run())
	}
	self := exec.Command("/proc/self/exe", os.Args[1:]...)
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	self.Env = append(os.Environ(), namespaceVariable+"=1")
	self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		self.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		self.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		self.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := self.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "run in network namespace:", err)
		os.Exit(1)
	}
}

var groups = []netip.AddrPort{netip.MustParseAddrPort("239.255.255.250:3702"), netip.MustParseAddrPort("[ff02::c]:3702")}

func ip(t *testing.T, commands ...string) {
	t.Helper()
	for _, command := range commands {
		output, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
		require.NoError(t, err, "ip %s: %s", command, output)
	}
}

// addLink adds an interface with addresses of both families and sets it up.
func addLink(t *testing.T, name, address4, address6 string) {
	t.Helper()
	ip(t, "link add "+name+" type veth peer name "+name+"-peer",
		"addr add "+address4+"/24 dev "+name, "addr add "+address6+"/64 dev "+name+" nodad",
		"link set "+name+"-peer up", "link set "+name+" up")
	t.Cleanup(func() { ip(t, "link del "+name) })
	require.Eventually(t, func() bool { // the kernel adds the multicast route asynchronously
		routes, err := exec.Command("ip", "-6", "route", "show", "table", "all", "type", "multicast", "dev", name).Output()
		return err == nil && len(routes) > 0
	}, time.Minute, time.Millisecond)
}

// open returns a Conn and what it receives, as `<datagram> from <address> on <networks>`.
func open(t *testing.T, patterns ...string) (*multicast.Conn, <-chan string) {
	t.Helper()
	filter, err := multicast.ParseInterfaceFilter(patterns)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	conn, err := multicast.Open(ctx, groups, filter, zap.NewNop())
	require.NoError(t, err)
	received := make(chan string, 100)
	var receiving errgroup.Group
	receiving.Go(func() error {
		return conn.Receive(ctx, func(datagram []byte, from address.Origin) {
			received <- fmt.Sprintf("%s from %s on %s", datagram, from.Addr, from.Networks)
		})
	})
	t.Cleanup(func() {
		cancel()
		require.NoError(t, receiving.Wait())
	})
	return conn, received
}

func take(t *testing.T, received <-chan string, count int) []string {
	t.Helper()
	var taken []string
	for range count {
		select {
		case datagram := <-received:
			taken = append(taken, datagram)
		case <-time.After(10 * time.Second):
			require.FailNow(t, "not enough datagrams received", "%v", taken)
		}
	}
	return taken
}

func send(t *testing.T, conn *multicast.Conn, message string, count int) {
	t.Helper()
	sent, err := conn.Send([]byte(message))
	require.NoError(t, err)
	require.Equal(t, count, sent, "interfaces and families")
}

func TestConnUsesSelectedInterfacesAndBothFamilies(t *testing.T) {
	addLink(t, "one", "10.1.0.1", "fe80::1")
	addLink(t, "two", "10.2.0.1", "fe80::2")
	addLink(t, "veth", "10.3.0.1", "fe80::3")
	both, receivedByBoth := open(t, "!lo", "!veth*", "!*-peer")
	one, receivedByOne := open(t, "one")
	send(t, both, "hello", 4) // joins the groups
	take(t, receivedByBoth, 4)
	send(t, one, "again", 2)
	require.ElementsMatch(t, []string{"again from 10.1.0.1 on [10.1.0.0/24 fe80::/64]", "again from fe80::1%one on [10.1.0.0/24 fe80::/64]"}, take(t, receivedByOne, 2))
	require.ElementsMatch(t, []string{"again from 10.1.0.1 on [10.1.0.0/24 fe80::/64]", "again from fe80::1%one on [10.1.0.0/24 fe80::/64]"}, take(t, receivedByBoth, 2))
	require.Eventually(t, func() bool { return !both.Pending() }, time.Minute, time.Millisecond)
}

func TestConnUsesInterfacesAddedLater(t *testing.T) {
	conn, received := open(t, "late")
	send(t, conn, "before", 0)
	addLink(t, "late", "10.4.0.1", "fe80::4")
	send(t, conn, "up", 2)
	require.ElementsMatch(t, []string{"up from 10.4.0.1 on [10.4.0.0/24 fe80::/64]", "up from fe80::4%late on [10.4.0.0/24 fe80::/64]"}, take(t, received, 2))
	ip(t, "link set late down")
	send(t, conn, "down", 0)
}
