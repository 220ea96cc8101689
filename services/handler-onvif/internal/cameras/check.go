package cameras

import (
	"slices"
	"time"

	"akri.sh/libs/handler/address"
)

const (
	// maxFailures is the number of consecutive failed checks that remove a camera.
	maxFailures = 2
	maxBackoff  = time.Minute
	// forgetAfter is the time after the last announcement when an endpoint that does not answer is
	// removed from the cache.
	forgetAfter = 2 * time.Minute
	// minCheckInterval is the minimum time between checks of an endpoint that announces itself
	// often.
	minCheckInterval = time.Second
	// maxURLs is the number of URLs in one check.
	maxURLs = 4
)

// Check is a request to call the device service of an endpoint. The URLs are called in order
// until one answers.
type Check struct {
	UUID     string
	Sender   address.Origin // announced the URLs
	URLs     []string
	Verified bool // the endpoint answered before
}

// Result of a Check. The URL is empty if none answered.
type Result struct {
	URL         string
	ClockOffset time.Duration
}

// Due returns the checks to start. Each must be completed by Complete.
func (c *Cache) Due(now time.Time) []Check {
	var due []Check
	for _, e := range c.endpoints {
		switch {
		case e.checking || e.nextCheck.After(now):
		case e.url == "" && now.Sub(e.lastSeen) > forgetAfter:
			c.remove(e)
		default:
			e.checking = true
			due = append(due, Check{UUID: e.uuid, Sender: e.sender, URLs: c.candidates(e), Verified: e.url != ""})
		}
	}
	return due
}

// Next returns the time of the next check. It returns false if none is planned.
func (c *Cache) Next() (time.Time, bool) {
	var next time.Time
	for _, e := range c.endpoints {
		if !e.checking && (next.IsZero() || e.nextCheck.Before(next)) {
			next = e.nextCheck
		}
	}
	return next, !next.IsZero()
}

// Complete handles the result of a check. It reports whether a camera appeared, moved or
// disappeared.
func (c *Cache) Complete(check Check, result Result, now time.Time) (changed bool) {
	e := c.endpoints[check.UUID]
	if e == nil {
		return false
	}
	previous := e.url
	e.checking, e.lastCheck, e.checkedURLs = false, now, check.URLs
	switch {
	case result.URL != "":
		c.succeed(e, result, now)
	case c.hasUncheckedURL(e):
		e.nextCheck = now.Add(minCheckInterval) // it announced another address during the check
	default:
		c.fail(e, now)
	}
	return e.url != previous
}

func (c *Cache) succeed(e *endpoint, result Result, now time.Time) {
	if e.url == "" {
		c.removeUnverified(e)
	}
	e.url, e.clockOffset, e.failures = result.URL, result.ClockOffset, 0
	e.nextCheck = now.Add(c.Interval)
}

func (c *Cache) fail(e *endpoint, now time.Time) {
	e.failures++
	switch {
	case e.url != "" && (e.bye || e.failures >= maxFailures):
		e.url, e.failures, e.bye, e.nextCheck = "", 0, false, now.Add(c.Interval)
		c.addUnverified(e)
	case e.url != "":
		e.nextCheck = now.Add(c.Interval / 2)
	default:
		e.nextCheck = now.Add(min(c.Interval<<min(e.failures-1, 8), maxBackoff))
	}
}

// Pending returns the number of endpoints that must be checked before the list of cameras is
// complete: cameras without a check since the time, and other endpoints with unchecked URLs.
func (c *Cache) Pending(since time.Time) int {
	pending := 0
	for _, e := range c.endpoints {
		if c.hasUncheckedURL(e) || e.url != "" && e.lastCheck.Before(since) {
			pending++
		}
	}
	return pending
}

// candidates returns the URLs to check. The current URL of a camera is the first, so that a
// forged announcement cannot redirect the check. It is omitted only if the camera announced other
// addresses and the host of the URL announced another camera there.
func (c *Cache) candidates(e *endpoint) []string {
	urls := slices.Clone(e.addresses)
	if e.url != "" {
		announced := slices.Contains(urls, e.url)
		urls = slices.DeleteFunc(urls, func(url string) bool { return url == e.url })
		if announced || !c.hasNewOwner(e) {
			urls = slices.Insert(urls, 0, e.url)
		}
	}
	return urls[:min(len(urls), maxURLs)]
}

func (c *Cache) hasNewOwner(e *endpoint) bool {
	for _, other := range c.endpoints {
		if other != e && slices.Contains(other.addresses, e.url) && isAddressOf(other.sender.Addr, e.url) {
			return true
		}
	}
	return false
}

// hasUncheckedURL reports whether an endpoint that does not answer has a URL that the last check
// did not include.
func (c *Cache) hasUncheckedURL(e *endpoint) bool {
	return e.url == "" && slices.ContainsFunc(c.candidates(e), func(url string) bool {
		return !slices.Contains(e.checkedURLs, url)
	})
}

// checkSoon moves the next check forward, but not closer than minCheckInterval to the last one.
func (e *endpoint) checkSoon(now time.Time) {
	soon := e.lastCheck.Add(minCheckInterval)
	if soon.Before(now) {
		soon = now
	}
	if soon.Before(e.nextCheck) {
		e.nextCheck = soon
	}
}
