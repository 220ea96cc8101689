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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"akri.sh/integration/devices/netns"
)

// Conditions of the network between cameras and clients.
type Conditions struct {
	// Namespace is the file of the cameras' network namespace; empty: the current one.
	Namespace string
	// Interface for multicast.
	Interface string
	// Loss is the fraction of lost datagrams in each direction.
	Loss float64
	// Delay is the maximum delay of the answer to a probe. Each answer has a random delay.
	Delay time.Duration
	// Seed makes loss and delay repeatable.
	Seed uint64
}

// Fleet runs cameras.
type Fleet struct {
	// Address of all cameras on the network of StartOn.
	Address netip.Addr

	conditions Conditions
	link       *net.Interface
	groups     []*net.UDPConn
	sequence   atomic.Uint64
	probes     atomic.Int64
	tasks      sync.WaitGroup
	stop       context.CancelFunc
	namespace  *netns.Namespace // of StartOn, or nil

	mu      sync.Mutex
	random  *rand.Rand
	plugged []*running // in the order of plugging, to make the use of random repeatable
}

// running is a camera with its sockets.
type running struct {
	*Camera
	servers []*http.Server
	senders []sender // one for each address family
}

// Start starts to receive probes over IPv4 and IPv6. Plug adds cameras.
func Start(ctx context.Context, conditions Conditions) (*Fleet, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Fleet{
		conditions: conditions, stop: cancel, random: rand.New(rand.NewPCG(conditions.Seed, 0)),
	}
	if err := netns.Do(conditions.Namespace, func() error { return f.listen(ctx) }); err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	for _, group := range f.groups {
		f.tasks.Go(func() { f.receive(ctx, group) })
	}
	return f, nil
}

func (f *Fleet) listen(ctx context.Context) (err error) {
	if f.link, err = net.InterfaceByName(f.conditions.Interface); err != nil {
		return fmt.Errorf("find interface: %w", err)
	}
	for _, address := range []netip.AddrPort{group4, group6} {
		group, err := listenGroup(ctx, f.link, address)
		if err != nil {
			return err
		}
		f.groups = append(f.groups, group)
	}
	return nil
}

// Namespace returns the file of the network namespace of StartOn.
func (f *Fleet) Namespace() string { return f.namespace.Path() }

// Stop stops all cameras without a Bye, and removes the network namespace of StartOn.
func (f *Fleet) Stop() error {
	f.stop()
	for _, group := range f.groups {
		_ = group.Close()
	}
	f.mu.Lock()
	plugged := f.plugged
	f.plugged = nil
	f.mu.Unlock()
	for _, r := range plugged {
		r.close()
	}
	f.tasks.Wait()
	if f.namespace == nil {
		return nil
	}
	return f.namespace.Close()
}

func (r *running) close() {
	for _, server := range r.servers {
		_ = server.Close()
	}
	for _, s := range r.senders {
		_ = s.conn.Close()
	}
}

// Plug starts cameras without a Hello.
func (f *Fleet) Plug(cameras ...*Camera) error {
	return netns.Do(f.conditions.Namespace, func() error {
		for _, camera := range cameras {
			r, err := f.run(camera)
			if err != nil {
				return fmt.Errorf("start camera: %w", err)
			}
			f.mu.Lock()
			f.plugged = append(f.plugged, r)
			f.mu.Unlock()
		}
		return nil
	})
}

func (f *Fleet) run(camera *Camera) (*running, error) {
	r := &running{Camera: camera}
	for _, address := range camera.addresses() {
		listener, err := net.Listen("tcp", f.withZone(address).String())
		if err != nil {
			r.close()
			return nil, err
		}
		server := &http.Server{Handler: camera.service(), ReadHeaderTimeout: time.Minute}
		server.SetKeepAlivesEnabled(false) // as many cameras do
		r.servers = append(r.servers, server)
		f.tasks.Go(func() { _ = server.Serve(listener) })
		sameFamily := func(s sender) bool { return s.source.Is4() == address.Addr().Is4() }
		if slices.ContainsFunc(r.senders, sameFamily) {
			continue
		}
		s, err := f.newSender(address.Addr())
		if err != nil {
			r.close()
			return nil, err
		}
		r.senders = append(r.senders, s)
	}
	return r, nil
}

// Unplug stops cameras without a Bye.
func (f *Fleet) Unplug(cameras ...*Camera) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plugged = slices.DeleteFunc(f.plugged, func(r *running) bool {
		unplug := slices.Contains(cameras, r.Camera)
		if unplug {
			r.close()
		}
		return unplug
	})
}

// Hello announces a camera, which need not be plugged.
func (f *Fleet) Hello(camera *Camera) error {
	return f.announce(camera, "Hello", "<d:Hello>"+camera.description()+"</d:Hello>")
}

// Bye sends the Bye of a camera, which may still be plugged.
func (f *Fleet) Bye(camera *Camera) error {
	return f.announce(camera, "Bye", fmt.Sprintf(
		`<d:Bye><wsa:EndpointReference><wsa:Address>urn:uuid:%s</wsa:Address></wsa:EndpointReference></d:Bye>`, camera.UUID))
}

func (f *Fleet) announce(camera *Camera, action, body string) error {
	return f.Send(camera.Address.Addr(), discoveryMessage(action, "", body, f.sequence.Add(1)))
}

// Send sends a datagram to the multicast group of the address family.
func (f *Fleet) Send(from netip.Addr, datagram []byte) error {
	return netns.Do(f.conditions.Namespace, func() error {
		s, err := f.newSender(from)
		if err != nil {
			return err
		}
		defer func() { _ = s.conn.Close() }()
		return s.toGroup(f.link, datagram)
	})
}

// Probes returns the number of received probes, including those that count as lost.
func (f *Fleet) Probes() int { return int(f.probes.Load()) }

type probe struct {
	MessageID string `xml:"Header>MessageID"`
	Body      struct {
		Probe *struct {
			Types string `xml:"Types"`
		} `xml:"Probe"`
	} `xml:"Body"`
}

func (f *Fleet) receive(ctx context.Context, group *net.UDPConn) {
	buffer := make([]byte, 1<<16)
	for {
		size, from, err := group.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		var p probe
		if xml.Unmarshal(buffer[:size], &p) != nil || p.Body.Probe == nil {
			continue
		}
		f.probes.Add(1)
		f.answerProbe(ctx, p, from)
	}
}

func (f *Fleet) answerProbe(ctx context.Context, p probe, from netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.plugged {
		if !r.hasTypes(p.Body.Probe.Types) || f.random.Float64() < f.conditions.Loss || f.random.Float64() < f.conditions.Loss {
			continue // other types, or the probe or the answer is lost
		}
		delay := time.Duration(f.random.Float64() * float64(f.conditions.Delay))
		f.tasks.Go(func() {
			select {
			case <-ctx.Done():
			case <-time.After(delay):
				f.sendMatch(r, p.MessageID, from)
			}
		})
	}
}

// sendMatch sends from the camera's address of the probe's family.
func (f *Fleet) sendMatch(r *running, relatesTo string, to netip.AddrPort) {
	body := "<d:ProbeMatches><d:ProbeMatch>" + r.description() + "</d:ProbeMatch></d:ProbeMatches>"
	for _, s := range r.senders {
		if s.source.Is4() == to.Addr().Unmap().Is4() {
			_, _ = s.conn.WriteToUDPAddrPort(discoveryMessage("ProbeMatches", relatesTo, body, f.sequence.Add(1)), to)
		}
	}
}

// hasTypes reports whether the camera has all types of a probe.
func (c *Camera) hasTypes(types string) bool {
	for name := range strings.FieldsSeq(types) {
		if local := name[strings.Index(name, ":")+1:]; !slices.Contains(c.types(), local) {
			return false
		}
	}
	return true
}
