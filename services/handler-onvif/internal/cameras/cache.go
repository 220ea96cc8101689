// Package cameras caches the endpoints that announce themselves by WS-Discovery. It decides when an
// endpoint must be checked and which endpoints are cameras. It does no I/O.
package cameras

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"akri.sh/libs/handler/address"
	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

// Limits of a Cache against hostile senders.
const (
	maxEndpoints = 10_000
	// maxUnverified is the number of endpoints that one sender may announce and that never
	// answered.
	maxUnverified = 256
	// maxBytes is for all endpoints: 10,000 of usual size, fewer if they are large.
	maxBytes = 16 << 20
	// maxAddresses is the number of cached addresses of an endpoint that does not answer.
	maxAddresses = 8
)

const (
	// replaceAfter is the time after which the older of two endpoints with the same address is
	// replaced if only the newer one still announces itself. This happens when a UUID changes.
	replaceAfter = time.Minute
	// silentIntervals is the number of intervals after which an announcement counts as a Hello.
	silentIntervals = 3
)

// Camera is an endpoint whose device service answers.
type Camera struct {
	UUID   string
	Scopes []string
	// URL of the device service.
	URL string
	// Sender announced the URL.
	Sender      address.Origin
	ClockOffset time.Duration // the camera's time minus the local time
}

// Options of a Cache.
type Options struct {
	// Interval between the checks of a camera.
	Interval time.Duration
	// MaxPerHost is the number of cameras of one host.
	MaxPerHost int
	// Policy decides which addresses are called.
	Policy address.Policy
}

// Cache is a cache of endpoints. It is not safe for concurrent use.
type Cache struct {
	Options

	endpoints  map[string]*endpoint
	unverified map[netip.Addr]int // endpoints that do not answer, by sender
	bytes      int
}

type endpoint struct {
	uuid        string
	scopes      []string
	addresses   []string
	sender      address.Origin
	firstSeen   time.Time
	lastSeen    time.Time
	lastCheck   time.Time
	checkedURLs []string // of the last check
	nextCheck   time.Time
	checking    bool
	bye         bool
	failures    int
	url         string // empty if the endpoint does not answer
	clockOffset time.Duration
}

// NewCache returns an empty Cache.
func NewCache(options Options) *Cache {
	return &Cache{Options: options, endpoints: map[string]*endpoint{}, unverified: map[netip.Addr]int{}}
}

// Announce handles the announcement of an endpoint: a ProbeMatch, or a Hello. Any sender can forge
// one, so it causes checks and updates scopes, but does not add, move or remove a camera.
func (c *Cache) Announce(announced wsdiscovery.Endpoint, hello bool, sender address.Origin, now time.Time) {
	addresses := c.usableAddresses(announced.Addresses, sender)
	if announced.Foreign || len(addresses) == 0 {
		return
	}
	e := c.endpoints[announced.UUID]
	if e == nil {
		e = &endpoint{
			uuid: announced.UUID, sender: sender, firstSeen: now, nextCheck: now,
			addresses: addresses, scopes: announced.Scopes,
		}
		if !c.add(e) {
			return
		}
	}
	hello = hello || now.Sub(e.lastSeen) > silentIntervals*c.Interval
	moved := e.url != "" && !slices.Contains(addresses, e.url)
	e.lastSeen = now
	c.update(e, addresses, announced.Scopes, moved)
	if moved || hello || c.hasUncheckedURL(e) {
		e.checkSoon(now)
	}
	if e.url == "" {
		c.removeUnverified(e)
		e.sender = sender
		c.addUnverified(e)
	}
	if hello {
		e.bye = false
	}
}

// add returns false if a limit is reached.
func (c *Cache) add(e *endpoint) bool {
	if len(c.endpoints) >= maxEndpoints || c.unverified[e.sender.Addr.WithZone("")] >= maxUnverified || c.bytes+e.bytes() > maxBytes {
		return false
	}
	c.addUnverified(e)
	c.endpoints[e.uuid] = e
	c.bytes += e.bytes()
	return true
}

func (c *Cache) remove(e *endpoint) {
	c.removeUnverified(e)
	c.bytes -= e.bytes()
	delete(c.endpoints, e.uuid)
}

// update changes addresses and scopes, unless the endpoint would exceed maxBytes.
func (c *Cache) update(e *endpoint, addresses, scopes []string, moved bool) {
	updated := *e
	updated.update(addresses, scopes, moved)
	growth := updated.bytes() - e.bytes()
	if growth > 0 && c.bytes+growth > maxBytes {
		return
	}
	*e = updated
	c.bytes += growth
}

// update keeps previous addresses after the new ones until the endpoint answers, and keeps the
// scopes of a camera that did not announce its current address, because the announcement may be
// forged.
func (e *endpoint) update(addresses, scopes []string, moved bool) {
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

// bytes estimates the memory of the endpoint.
func (e *endpoint) bytes() int {
	const perEndpoint, perString = 512, 32
	sum := perEndpoint + len(e.uuid)
	for _, text := range slices.Concat(e.addresses, e.scopes) {
		sum += perString + len(text)
	}
	return sum
}

func (c *Cache) addUnverified(e *endpoint) { c.unverified[e.sender.Addr.WithZone("")]++ }

func (c *Cache) removeUnverified(e *endpoint) {
	sender := e.sender.Addr.WithZone("")
	if c.unverified[sender]--; c.unverified[sender] <= 0 {
		delete(c.unverified, sender)
	}
}

// Bye handles the Bye of an endpoint. Any sender can forge it, so it only causes a check.
func (c *Cache) Bye(uuid string, now time.Time) {
	if e := c.endpoints[uuid]; e != nil && e.url != "" {
		e.bye = true
		e.checkSoon(now)
	}
}

// Cameras returns the endpoints that answer, sorted by UUID. Endpoints with the same address are
// one camera. Of the cameras of one host, the first MaxPerHost by the time of their announcement
// count. The second result are the hosts that have more.
func (c *Cache) Cameras() (cameras []Camera, excessive []string) {
	byHost := map[string][]*endpoint{}
	for url, e := range c.owners() {
		host, _ := hostAndScheme(url)
		byHost[host] = append(byHost[host], e)
	}
	cameras = []Camera{}
	for host, endpoints := range byHost {
		if len(endpoints) > c.MaxPerHost {
			slices.SortFunc(endpoints, func(a, b *endpoint) int {
				return cmp.Or(a.firstSeen.Compare(b.firstSeen), cmp.Compare(a.uuid, b.uuid))
			})
			endpoints, excessive = endpoints[:c.MaxPerHost], append(excessive, host)
		}
		for _, e := range endpoints {
			cameras = append(cameras, Camera{UUID: e.uuid, Scopes: e.scopes, URL: e.url, Sender: e.sender, ClockOffset: e.clockOffset})
		}
	}
	slices.SortFunc(cameras, func(a, b Camera) int { return cmp.Compare(a.UUID, b.UUID) })
	slices.Sort(excessive)
	return cameras, excessive
}

// owners returns one endpoint for each URL.
func (c *Cache) owners() map[string]*endpoint {
	owners := map[string]*endpoint{}
	for _, e := range c.endpoints {
		if e.url != "" && (owners[e.url] == nil || e.ownsBefore(owners[e.url])) {
			owners[e.url] = e
		}
	}
	return owners
}

// ownsBefore reports whether e and not other owns their address: the endpoint that was seen first,
// unless only the other one is still seen.
func (e *endpoint) ownsBefore(other *endpoint) bool {
	switch newer := e.lastSeen.Sub(other.lastSeen); {
	case newer > replaceAfter:
		return true
	case newer < -replaceAfter:
		return false
	}
	if order := e.firstSeen.Compare(other.firstSeen); order != 0 {
		return order < 0
	}
	return e.uuid < other.uuid
}
