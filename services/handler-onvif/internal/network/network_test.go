package network_test

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

	"akri.sh/services/handler-onvif/internal/network"
)

const inside = "AKRI_TEST_NETWORK"

// TestMain runs the tests in a network namespace of their own, as the root of it.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	self := exec.Command("/proc/self/exe", os.Args[1:]...)
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	self.Env = append(os.Environ(), inside+"=1")
	self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		self.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		self.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		self.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := self.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "run in a network namespace:", err)
		os.Exit(1)
	}
}

var group = network.Group{V4: netip.MustParseAddr("239.255.255.250"), V6: netip.MustParseAddr("ff02::c"), Port: 3702}

func ip(t *testing.T, commands ...string) {
	t.Helper()
	for _, command := range commands {
		output, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
		require.NoError(t, err, "ip %s: %s", command, output)
	}
}

// link adds an interface that is up and has addresses of both families.
func link(t *testing.T, name, address4, address6 string) {
	t.Helper()
	ip(t, "link add "+name+" type veth peer name "+name+"-peer",
		"addr add "+address4+"/24 dev "+name, "addr add "+address6+"/64 dev "+name+" nodad",
		"link set "+name+"-peer up", "link set "+name+" up")
	t.Cleanup(func() { ip(t, "link del "+name) })
	require.Eventually(t, func() bool { // the kernel takes note of a link that is up a moment later
		routes, err := exec.Command("ip", "-6", "route", "show", "table", "all", "type", "multicast", "dev", name).Output()
		return err == nil && len(routes) > 0
	}, 10*time.Second, time.Millisecond)
}

// open returns a network and what it hears, as `<datagram> from <address>`.
func open(t *testing.T, patterns ...string) (*network.Network, <-chan string) {
	t.Helper()
	choice, err := network.ParseChoice(patterns)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	n, err := network.Open(ctx, group, choice, zap.NewNop())
	require.NoError(t, err)
	heard := make(chan string, 100)
	var receiving errgroup.Group
	receiving.Go(func() error {
		return n.Receive(ctx, func(datagram []byte, from netip.Addr) { heard <- fmt.Sprintf("%s from %s", datagram, from) })
	})
	t.Cleanup(func() {
		cancel()
		require.NoError(t, receiving.Wait())
	})
	return n, heard
}

func take(t *testing.T, heard <-chan string, count int) []string {
	t.Helper()
	var taken []string
	for range count {
		select {
		case one := <-heard:
			taken = append(taken, one)
		case <-time.After(10 * time.Second):
			require.FailNow(t, "nothing more is heard", "%v", taken)
		}
	}
	return taken
}

func send(t *testing.T, n *network.Network, message string, count int) {
	t.Helper()
	sent, err := n.Send([]byte(message))
	require.NoError(t, err)
	require.Equal(t, count, sent, "interfaces and families")
}

func TestEveryoneOnTheChosenInterfacesHearsOverBothFamilies(t *testing.T) {
	link(t, "one", "10.1.0.1", "fe80::1")
	link(t, "two", "10.2.0.1", "fe80::2")
	link(t, "veth", "10.3.0.1", "fe80::3")
	all, heardOfAll := open(t, "!lo", "!veth*", "!*-peer")
	one, heardOfOne := open(t, "one")
	send(t, all, "hello", 4) // and hears the groups from now on
	take(t, heardOfAll, 4)
	send(t, one, "again", 2)
	require.ElementsMatch(t, []string{"again from 10.1.0.1", "again from fe80::1%one"}, take(t, heardOfOne, 2))
	require.ElementsMatch(t, []string{"again from 10.1.0.1", "again from fe80::1%one"}, take(t, heardOfAll, 2))
	require.False(t, all.Waiting())
}

func TestAnInterfaceThatComesLaterIsHeardToo(t *testing.T) {
	n, heard := open(t, "late")
	send(t, n, "nobody", 0)
	link(t, "late", "10.4.0.1", "fe80::4")
	send(t, n, "here", 2)
	require.ElementsMatch(t, []string{"here from 10.4.0.1", "here from fe80::4%late"}, take(t, heard, 2))
	ip(t, "link set late down")
	send(t, n, "nobody", 0)
}
