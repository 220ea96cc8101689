// Package roster keeps who claims to be a camera and which of them is one. It asks nobody itself: it says whom to ask
// and is told what they answered.
package roster

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

// Limits on what strangers can make a roster hold.
const (
	maxEndpoints = 10_000
	// maxStrangers is how many endpoints that never answered one sender may announce.
	maxStrangers = 256
	// maxBytes is what all endpoints may take: ten thousand as cameras are, fewer of those that say all they can.
	maxBytes = 16 << 20
	// maxAttempts is how many addresses of an endpoint are tried in one check.
	maxAttempts = 4
	// maxAddresses is how many addresses are kept of an endpoint that does not answer.
	maxAddresses = 8
)

const (
	// patience is how many failed checks in a row take a camera away.
	patience   = 2
	maxBackoff = time.Minute
	// silence is for how many intervals a device that is there may not be heard.
	silence = 3
	// forgetAfter is how long an endpoint is remembered that neither answers nor is heard of.
	forgetAfter = 2 * time.Minute
	// eager is the least time between checks, however often an endpoint says Hello.
	eager = time.Second
	// superseded is how much later another endpoint was heard that has the same address, when a camera got a new UUID.
	superseded = time.Minute
)

// Camera is an endpoint whose device service answers.
type Camera struct {
	UUID   string
	Scopes []string
	// URL of its device service, and the interface to reach it by when the address is link-local.
	URL, Zone string
	// ClockOffset is how far its clock is ahead.
	ClockOffset time.Duration
}

// Check is a question to ask: the first of the URLs that answers is the camera's.
type Check struct {
	UUID, Zone string
	URLs       []string
	// Known: it answered before.
	Known bool
}

// Answer to a Check: an empty URL says that none answered.
type Answer struct {
	URL         string
	ClockOffset time.Duration
}

type endpoint struct {
	uuid      string
	scopes    []string
	addresses []string
	source    netip.Addr
	first     time.Time // heard first
	heard     time.Time // heard last
	settled   time.Time // checked last
	asked     []string  // at which addresses
	next      time.Time // to check next
	checking  bool
	leaving   bool // it said Bye
	failures  int
	url       string // where it answers; empty: it does not
	offset    time.Duration
}

// Roster is for one goroutine at a time.
type Roster struct {
	interval  time.Duration
	endpoints map[string]*endpoint
	strangers map[netip.Addr]int
	bytes     int
}

// New makes a roster that wants each camera checked once in an interval.
func New(interval time.Duration) *Roster {
	return &Roster{interval: interval, endpoints: map[string]*endpoint{}, strangers: map[netip.Addr]int{}}
}

// Heard takes what an endpoint says of itself in a Hello or in an answer to a probe.
func (r *Roster) Heard(said wsdiscovery.Endpoint, hello bool, from netip.Addr, now time.Time) {
	addresses := usable(said.Addresses, from)
	if said.Foreign || len(addresses) == 0 {
		return
	}
	e := r.endpoints[said.UUID]
	if e == nil {
		e = &endpoint{uuid: said.UUID, source: from, first: now, next: now, addresses: addresses, scopes: said.Scopes}
		if len(r.endpoints) >= maxEndpoints || r.strangers[from.WithZone("")] >= maxStrangers || r.bytes+e.bytes() > maxBytes {
			return
		}
		r.strangers[from.WithZone("")]++
		r.endpoints[said.UUID] = e
		r.bytes += e.bytes()
	}
	// One that was silent is as new as one that says Hello.
	hello = hello || now.Sub(e.heard) > silence*r.interval
	moved := e.url != "" && !slices.Contains(addresses, e.url)
	e.heard = now
	r.take(e, addresses, said.Scopes, moved)
	if moved || hello || r.untried(e) {
		e.next = earlier(e.next, later(now, e.settled.Add(eager)))
	}
	if e.url == "" {
		e.source = r.stranger(e, from)
	}
	if hello {
		e.leaving = false
	}
}

// take keeps what was said, while there is room.
func (r *Roster) take(e *endpoint, addresses, scopes []string, moved bool) {
	changed := *e
	changed.take(addresses, scopes, moved)
	grown := changed.bytes() - e.bytes()
	if grown > 0 && r.bytes+grown > maxBytes {
		return
	}
	*e = changed
	r.bytes += grown
}

// bytes is about what the endpoint takes in memory.
func (e *endpoint) bytes() int {
	const itself, each = 512, 32
	sum := itself + len(e.uuid)
	for _, text := range slices.Concat(e.addresses, e.scopes) {
		sum += each + len(text)
	}
	return sum
}

// take keeps what was said. Anyone can say it in a camera's name: until it answers, what others said stays, after what is
// newest; and while it answers elsewhere, its scopes stay.
func (e *endpoint) take(addresses, scopes []string, moved bool) {
	if e.url == "" {
		for _, address := range e.addresses {
			if len(addresses) < maxAddresses && !slices.Contains(addresses, address) {
				addresses = append(addresses, address)
			}
		}
	}
	e.addresses = addresses
	if !moved {
		e.scopes = scopes
	}
}

// stranger counts an endpoint that does not answer for whom announced it last.
func (r *Roster) stranger(e *endpoint, from netip.Addr) netip.Addr {
	r.uncount(e)
	r.strangers[from.WithZone("")]++
	return from
}

func (r *Roster) uncount(e *endpoint) {
	source := e.source.WithZone("")
	if r.strangers[source]--; r.strangers[source] <= 0 {
		delete(r.strangers, source)
	}
}

// Bye takes that an endpoint leaves. Anyone can say so in its name: it is believed when the endpoint no longer answers.
func (r *Roster) Bye(uuid string, now time.Time) {
	if e := r.endpoints[uuid]; e != nil && e.url != "" {
		e.leaving = true
		e.next = earlier(e.next, later(now, e.settled.Add(eager)))
	}
}

// Due returns the checks to do now, each until it is settled.
func (r *Roster) Due(now time.Time) []Check {
	var due []Check
	for uuid, e := range r.endpoints {
		switch {
		case e.checking || e.next.After(now):
		case e.url == "" && now.Sub(e.heard) > forgetAfter:
			r.uncount(e)
			r.bytes -= e.bytes()
			delete(r.endpoints, uuid)
		default:
			e.checking = true
			due = append(due, Check{UUID: uuid, Zone: e.source.Zone(), URLs: r.candidates(e), Known: e.url != ""})
		}
	}
	return due
}

// candidates are the addresses to try: first where the endpoint answered last, so that nobody can lead away from it.
// Only when it no longer claims that address and another endpoint does, from there, the address has a new owner.
func (r *Roster) candidates(e *endpoint) []string {
	addresses := slices.Clone(e.addresses)
	if e.url == "" {
		return addresses[:min(len(addresses), maxAttempts)]
	}
	claimed := slices.Contains(addresses, e.url)
	addresses = slices.DeleteFunc(addresses, func(address string) bool { return address == e.url })
	if claimed || !r.claimedByAnother(e) {
		addresses = slices.Insert(addresses, 0, e.url)
	}
	return addresses[:min(len(addresses), maxAttempts)]
}

func (r *Roster) claimedByAnother(e *endpoint) bool {
	for _, other := range r.endpoints {
		if other != e && slices.Contains(other.addresses, e.url) && isFrom(other.source, e.url) {
			return true
		}
	}
	return false
}

// Next is when the next check is due; false: none is.
func (r *Roster) Next() (time.Time, bool) {
	var next time.Time
	for _, e := range r.endpoints {
		if !e.checking && (next.IsZero() || e.next.Before(next)) {
			next = e.next
		}
	}
	return next, !next.IsZero()
}

// Settle takes the answer to a check and returns whether the endpoint is elsewhere now, or there, or gone.
func (r *Roster) Settle(check Check, answer Answer, now time.Time) (changed bool) {
	e := r.endpoints[check.UUID]
	if e == nil {
		return false
	}
	before := e.url
	r.settle(e, check, answer, now)
	return e.url != before
}

func (r *Roster) settle(e *endpoint, check Check, answer Answer, now time.Time) {
	e.checking, e.settled, e.asked = false, now, check.URLs
	switch {
	case answer.URL == "" && r.untried(e):
		e.next = now.Add(eager) // it was asked before it told where it is
		return
	case answer.URL == "":
		r.failed(e, now)
		return
	}
	if e.url == "" {
		r.uncount(e)
	}
	e.url, e.failures, e.next = answer.URL, 0, now.Add(r.interval)
	e.offset = answer.ClockOffset
}

// untried tells whether an endpoint that does not answer was announced at an address where it was not asked.
func (r *Roster) untried(e *endpoint) bool {
	return e.url == "" && slices.ContainsFunc(r.candidates(e), func(address string) bool { return !slices.Contains(e.asked, address) })
}

func (r *Roster) failed(e *endpoint, now time.Time) {
	e.failures++
	switch {
	case e.url != "" && (e.leaving || e.failures >= patience):
		e.url, e.failures, e.leaving, e.next = "", 0, false, now.Add(r.interval)
		r.strangers[e.source.WithZone("")]++
	case e.url != "":
		e.next = now.Add(r.interval / 2)
	default:
		e.next = now.Add(min(r.interval<<min(e.failures-1, 8), maxBackoff))
	}
}

// Pending is how many endpoints were not checked since the time.
func (r *Roster) Pending(since time.Time) int {
	pending := 0
	for _, e := range r.endpoints {
		if r.untried(e) || e.url != "" && e.settled.Before(since) {
			pending++
		}
	}
	return pending
}

// Cameras returns those that answer, in the order of their UUIDs. One address is one camera.
func (r *Roster) Cameras() []Camera {
	owners := map[string]*endpoint{}
	for _, e := range r.endpoints {
		if e.url != "" && (owners[e.url] == nil || wins(e, owners[e.url])) {
			owners[e.url] = e
		}
	}
	cameras := make([]Camera, 0, len(owners))
	for url, e := range owners {
		cameras = append(cameras, Camera{UUID: e.uuid, Scopes: e.scopes, URL: url, Zone: e.source.Zone(), ClockOffset: e.offset})
	}
	slices.SortFunc(cameras, func(a, b Camera) int { return cmp.Compare(a.UUID, b.UUID) })
	return cameras
}

// wins: who was there first, unless only the other is still heard.
func wins(e, other *endpoint) bool {
	switch gap := e.heard.Sub(other.heard); {
	case gap > superseded:
		return true
	case gap < -superseded:
		return false
	}
	if c := e.first.Compare(other.first); c != 0 {
		return c < 0
	}
	return e.uuid < other.uuid
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
