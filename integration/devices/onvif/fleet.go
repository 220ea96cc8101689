package onvif

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// Conditions are those of the network between cameras and who looks for them.
type Conditions struct {
	// Interface to hear and say multicast on.
	Interface string
	// Loss is the part of datagrams that get lost, of each direction.
	Loss float64
	// Delay is the longest that a camera waits before it answers a probe; each picks its own time.
	Delay time.Duration
	// Seed makes loss and delay repeatable.
	Seed uint64
}

// Fleet is cameras that are switched on.
type Fleet struct {
	conditions Conditions
	group      *net.UDPConn
	link       *net.Interface
	sequence   atomic.Uint64
	probes     atomic.Int64
	work       sync.WaitGroup
	stop       context.CancelFunc

	mu      sync.Mutex
	random  *rand.Rand
	cameras map[*Camera][]*http.Server
	asked   map[string]int
}

var group = netip.MustParseAddrPort("239.255.255.250:3702")

// Start hears probes; cameras are switched on by Plug.
func Start(ctx context.Context, conditions Conditions) (*Fleet, error) {
	link, err := net.InterfaceByName(conditions.Interface)
	if err != nil {
		return nil, fmt.Errorf("find interface: %w", err)
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var problem error
		err := raw.Control(func(fd uintptr) { problem = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return errors.Join(err, problem)
	}}
	packets, err := config.ListenPacket(ctx, "udp4", group.String())
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	conn := packets.(*net.UDPConn)
	if err := ipv4.NewPacketConn(conn).JoinGroup(link, net.UDPAddrFromAddrPort(group)); err != nil {
		return nil, errors.Join(fmt.Errorf("join group: %w", err), conn.Close())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Fleet{
		conditions: conditions, group: conn, link: link, stop: cancel, cameras: map[*Camera][]*http.Server{}, asked: map[string]int{},
		random: rand.New(rand.NewPCG(conditions.Seed, 0)),
	}
	f.work.Go(func() { f.hear(ctx) })
	return f, nil
}

// Stop switches everything off without a word.
func (f *Fleet) Stop() {
	f.stop()
	_ = f.group.Close()
	f.mu.Lock()
	cameras := f.cameras
	f.cameras = map[*Camera][]*http.Server{}
	f.mu.Unlock()
	for _, servers := range cameras {
		closeAll(servers)
	}
	f.work.Wait()
}

func closeAll(servers []*http.Server) {
	for _, server := range servers {
		_ = server.Close()
	}
}

// Plug switches cameras on; Hello is another matter.
func (f *Fleet) Plug(cameras ...*Camera) error {
	for _, camera := range cameras {
		var servers []*http.Server
		for _, address := range append([]netip.AddrPort{camera.Address}, camera.MoreAddresses...) {
			listener, err := net.Listen("tcp", address.String())
			if err != nil {
				return fmt.Errorf("plug camera: %w", err)
			}
			server := &http.Server{Handler: f.service(camera), ReadHeaderTimeout: time.Minute}
			server.SetKeepAlivesEnabled(false) // as many cameras do
			servers = append(servers, server)
			f.work.Go(func() { _ = server.Serve(listener) })
		}
		f.mu.Lock()
		f.cameras[camera] = servers
		f.mu.Unlock()
	}
	return nil
}

// Unplug switches cameras off without a word.
func (f *Fleet) Unplug(cameras ...*Camera) {
	for _, camera := range cameras {
		f.mu.Lock()
		servers := f.cameras[camera]
		delete(f.cameras, camera)
		f.mu.Unlock()
		closeAll(servers)
	}
}

// Hello announces a camera.
func (f *Fleet) Hello(camera *Camera) error {
	return f.announce(camera, "Hello", "<d:Hello>"+camera.describe()+"</d:Hello>")
}

// Bye takes leave for a camera, which may go on answering.
func (f *Fleet) Bye(camera *Camera) error {
	return f.announce(camera, "Bye", fmt.Sprintf(`<d:Bye><wsa:EndpointReference><wsa:Address>urn:uuid:%s</wsa:Address></wsa:EndpointReference></d:Bye>`, camera.UUID))
}

func (f *Fleet) announce(camera *Camera, action, body string) error {
	return f.Say(camera.Address.Addr(), discoveryMessage(action, "", body, f.sequence.Add(1)))
}

// Say sends any datagram to the group.
func (f *Fleet) Say(from netip.Addr, datagram []byte) error {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)))
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err = ipv4.NewPacketConn(conn).WriteTo(datagram, &ipv4.ControlMessage{IfIndex: f.link.Index}, net.UDPAddrFromAddrPort(group)); err != nil {
		return fmt.Errorf("send to group: %w", err)
	}
	return nil
}

// Probes is how many probes were heard, before loss.
func (f *Fleet) Probes() int { return int(f.probes.Load()) }

// Asked is how often the operation was asked of the camera.
func (f *Fleet) Asked(camera *Camera, operation string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[camera.UUID+" "+operation]
}

func (f *Fleet) count(camera *Camera, operation string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[camera.UUID+" "+operation]++
}

// probe is what a camera reads of a probe.
type probe struct {
	MessageID string `xml:"Header>MessageID"`
	Body      struct {
		Probe *struct {
			Types string `xml:"Types"`
		} `xml:"Probe"`
	} `xml:"Body"`
}

func (f *Fleet) hear(ctx context.Context) {
	buffer := make([]byte, 1<<16)
	for {
		size, from, err := f.group.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		var heard probe
		if xml.Unmarshal(buffer[:size], &heard) != nil || heard.Body.Probe == nil {
			continue
		}
		f.probes.Add(1)
		f.answerProbe(ctx, heard, from)
	}
}

func (f *Fleet) answerProbe(ctx context.Context, heard probe, from netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for camera := range f.cameras {
		if !camera.hasTypes(heard.Body.Probe.Types) || f.random.Float64() < f.conditions.Loss || f.random.Float64() < f.conditions.Loss {
			continue // the probe or the answer is lost
		}
		delay := time.Duration(f.random.Float64() * float64(f.conditions.Delay))
		f.work.Go(func() {
			select {
			case <-ctx.Done():
			case <-time.After(delay):
				f.match(camera, heard.MessageID, from)
			}
		})
	}
}

func (f *Fleet) match(camera *Camera, relatesTo string, to netip.AddrPort) {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(camera.Address.Addr(), 0)))
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	body := "<d:ProbeMatches><d:ProbeMatch>" + camera.describe() + "</d:ProbeMatch></d:ProbeMatches>"
	_, _ = conn.WriteToUDPAddrPort(discoveryMessage("ProbeMatches", relatesTo, body, f.sequence.Add(1)), to)
}

// hasTypes: every type that is asked for must be one of the camera's.
func (c *Camera) hasTypes(asked string) bool {
	for name := range strings.FieldsSeq(asked) {
		_, local, found := strings.Cut(name, ":")
		if !found {
			local = name
		}
		has := false
		for _, own := range c.types() {
			has = has || own == local
		}
		if !has {
			return false
		}
	}
	return true
}
