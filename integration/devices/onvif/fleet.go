package onvif

import (
	"context"
	"encoding/xml"
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

// Conditions are those of the network between cameras and who looks for them.
type Conditions struct {
	// Namespace is the file of the network namespace that the cameras are in; empty: that of this process.
	Namespace string
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
	link       *net.Interface
	groups     []*net.UDPConn
	sequence   atomic.Uint64
	probes     atomic.Int64
	work       sync.WaitGroup
	stop       context.CancelFunc

	mu      sync.Mutex
	random  *rand.Rand
	cameras map[*Camera]*running
	order   []*Camera // in which they were plugged: one by one they have the same luck each time
	asked   map[string]int
}

// running is what a camera that is switched on holds open.
type running struct {
	servers []*http.Server
	voices  []voice // one for each family that it has an address of
}

// Start hears probes over IPv4 and IPv6, as far as the interface has them; cameras are switched on by Plug.
func Start(ctx context.Context, conditions Conditions) (*Fleet, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Fleet{
		conditions: conditions, stop: cancel, cameras: map[*Camera]*running{}, asked: map[string]int{},
		random: rand.New(rand.NewPCG(conditions.Seed, 0)),
	}
	if err := netns.Do(conditions.Namespace, func() error { return f.listen(ctx) }); err != nil {
		f.Stop()
		return nil, err
	}
	for _, group := range f.groups {
		f.work.Go(func() { f.hear(ctx, group) })
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

// Stop switches everything off without a word.
func (f *Fleet) Stop() {
	f.stop()
	for _, group := range f.groups {
		_ = group.Close()
	}
	f.mu.Lock()
	cameras := f.cameras
	f.cameras, f.order = map[*Camera]*running{}, nil
	f.mu.Unlock()
	for _, camera := range cameras {
		camera.close()
	}
	f.work.Wait()
}

func (r *running) close() {
	for _, server := range r.servers {
		_ = server.Close()
	}
	for _, voice := range r.voices {
		_ = voice.conn.Close()
	}
}

// Plug switches cameras on; Hello is another matter.
func (f *Fleet) Plug(cameras ...*Camera) error {
	return netns.Do(f.conditions.Namespace, func() error {
		for _, camera := range cameras {
			switchedOn, err := f.switchOn(camera)
			if err != nil {
				return fmt.Errorf("plug camera: %w", err)
			}
			f.mu.Lock()
			f.cameras[camera] = switchedOn
			f.order = append(f.order, camera)
			f.mu.Unlock()
		}
		return nil
	})
}

func (f *Fleet) switchOn(camera *Camera) (*running, error) {
	r := &running{}
	for _, address := range camera.addresses() {
		listener, err := net.Listen("tcp", f.zoned(address).String())
		if err != nil {
			r.close()
			return nil, err
		}
		server := &http.Server{Handler: f.service(camera), ReadHeaderTimeout: time.Minute}
		server.SetKeepAlivesEnabled(false) // as many cameras do
		r.servers = append(r.servers, server)
		f.work.Go(func() { _ = server.Serve(listener) })
		same := func(v voice) bool { return v.source.Is4() == address.Addr().Is4() }
		if slices.ContainsFunc(r.voices, same) {
			continue
		}
		voice, err := f.voice(address.Addr())
		if err != nil {
			r.close()
			return nil, err
		}
		r.voices = append(r.voices, voice)
	}
	return r, nil
}

// Unplug switches cameras off without a word.
func (f *Fleet) Unplug(cameras ...*Camera) {
	for _, camera := range cameras {
		f.mu.Lock()
		switchedOff := f.cameras[camera]
		delete(f.cameras, camera)
		f.order = slices.DeleteFunc(f.order, func(c *Camera) bool { return c == camera })
		f.mu.Unlock()
		if switchedOff != nil {
			switchedOff.close()
		}
	}
}

// Hello announces a camera, which may be switched off.
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

// Say sends any datagram to the group of the address' family.
func (f *Fleet) Say(from netip.Addr, datagram []byte) error {
	return netns.Do(f.conditions.Namespace, func() error {
		voice, err := f.voice(from)
		if err != nil {
			return err
		}
		defer func() { _ = voice.conn.Close() }()
		return voice.toGroup(f.link, datagram)
	})
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

func (f *Fleet) hear(ctx context.Context, group *net.UDPConn) {
	buffer := make([]byte, 1<<16)
	for {
		size, from, err := group.ReadFromUDPAddrPort(buffer)
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
	for _, camera := range f.order {
		if !camera.hasTypes(heard.Body.Probe.Types) || f.random.Float64() < f.conditions.Loss || f.random.Float64() < f.conditions.Loss {
			continue // the probe or the answer is lost
		}
		switchedOn := f.cameras[camera]
		delay := time.Duration(f.random.Float64() * float64(f.conditions.Delay))
		f.work.Go(func() {
			select {
			case <-ctx.Done():
			case <-time.After(delay):
				f.match(camera, switchedOn, heard.MessageID, from)
			}
		})
	}
}

// match answers from the camera's address of the family that the probe came by.
func (f *Fleet) match(camera *Camera, r *running, relatesTo string, to netip.AddrPort) {
	body := "<d:ProbeMatches><d:ProbeMatch>" + camera.describe() + "</d:ProbeMatch></d:ProbeMatches>"
	for _, voice := range r.voices {
		if voice.source.Is4() == to.Addr().Unmap().Is4() {
			_, _ = voice.conn.WriteToUDPAddrPort(discoveryMessage("ProbeMatches", relatesTo, body, f.sequence.Add(1)), to)
		}
	}
}

// hasTypes: every type that is asked for must be one of the camera's.
func (c *Camera) hasTypes(asked string) bool {
	for name := range strings.FieldsSeq(asked) {
		_, local, found := strings.Cut(name, ":")
		if !found {
			local = name
		}
		if !slices.Contains(c.types(), local) {
			return false
		}
	}
	return true
}
