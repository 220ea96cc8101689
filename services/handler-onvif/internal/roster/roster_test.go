package roster_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/services/handler-onvif/internal/roster"
	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

const (
	interval = 10 * time.Second
	here     = "http://10.0.0.1/onvif/device_service"
	there    = "http://10.0.0.2/onvif/device_service"
)

var (
	start  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	sender = netip.MustParseAddr("10.0.0.1")
)

// network is a roster and the addresses at which something answers.
type network struct {
	*roster.Roster

	now     time.Time
	answers map[string]bool
}

func newNetwork(answers ...string) *network {
	n := &network{Roster: roster.New(interval), now: start, answers: map[string]bool{}}
	for _, url := range answers {
		n.answers[url] = true
	}
	return n
}

func (n *network) match(uuid string, addresses ...string) {
	n.Heard(wsdiscovery.Endpoint{UUID: uuid, Addresses: addresses}, false, sender, n.now)
}

func (n *network) hello(uuid string, addresses ...string) {
	n.Heard(wsdiscovery.Endpoint{UUID: uuid, Addresses: addresses}, true, sender, n.now)
}

// settle does what is due and returns who was asked.
func (n *network) settle() map[string][]string {
	asked := map[string][]string{}
	for _, check := range n.Due(n.now) {
		asked[check.UUID] = check.URLs
		n.Settle(check, n.ask(check), n.now)
	}
	return asked
}

func (n *network) ask(check roster.Check) roster.Answer {
	for _, url := range check.URLs {
		if n.answers[url] {
			return roster.Answer{URL: url}
		}
	}
	return roster.Answer{}
}

func (n *network) pass(d time.Duration) { n.now = n.now.Add(d) }

// urls are where the cameras are.
func (n *network) urls() map[string]string {
	urls := map[string]string{}
	for _, camera := range n.Cameras() {
		urls[camera.UUID] = camera.URL
	}
	return urls
}

func TestWhoAnswersIsACameraAndIsAskedOnceInAnInterval(t *testing.T) {
	n := newNetwork(here)
	n.match("a", here)
	require.Equal(t, 1, n.Pending(start))
	require.Equal(t, map[string][]string{"a": {here}}, n.settle())
	require.Zero(t, n.Pending(start))
	require.Equal(t, map[string]string{"a": here}, n.urls())
	require.Empty(t, n.settle())
	next, found := n.Next()
	require.True(t, found)
	require.Equal(t, start.Add(interval), next)
	n.pass(interval)
	require.Len(t, n.settle(), 1)
}

func TestNothingIsDueOfAnEmptyRoster(t *testing.T) {
	n := newNetwork()
	_, found := n.Next()
	require.False(t, found)
	require.Empty(t, n.settle())
	require.Empty(t, n.Cameras())
}

func TestTwoFailuresTakeACameraAwayAndAnAnswerBringsItBack(t *testing.T) {
	n := newNetwork(here)
	n.match("a", here)
	n.settle()
	n.answers[here] = false
	n.pass(interval)
	n.settle()
	require.Len(t, n.Cameras(), 1, "once is nothing")
	n.pass(interval / 2)
	n.settle()
	require.Empty(t, n.Cameras())
	n.answers[here] = true
	n.pass(interval)
	n.settle()
	require.Len(t, n.Cameras(), 1)
}

func TestAByeIsBelievedWhenTheCameraNoLongerAnswers(t *testing.T) {
	n := newNetwork(here)
	n.match("a", here)
	n.settle()
	n.pass(2 * time.Second)
	n.Bye("a", n.now)
	n.Bye("nobody", n.now)
	require.Len(t, n.settle(), 1)
	require.Len(t, n.Cameras(), 1, "it answers")
	n.answers[here] = false
	n.pass(2 * time.Second)
	n.Bye("a", n.now)
	n.settle()
	require.Empty(t, n.Cameras())
}

func TestAHelloIsFollowedAtOnceButNotMoreThanOnceASecond(t *testing.T) {
	n := newNetwork()
	n.match("a", here)
	n.settle()
	n.answers[here] = true
	n.pass(100 * time.Millisecond)
	n.hello("a", here)
	require.Empty(t, n.settle())
	n.pass(time.Second)
	require.Len(t, n.settle(), 1)
	require.Len(t, n.Cameras(), 1)
	n.hello("b", here)
	require.Len(t, n.settle(), 1, "a new one at once")
}

func TestACameraThatMovedIsFollowed(t *testing.T) {
	n := newNetwork(here)
	n.match("a", here)
	n.settle()
	n.answers = map[string]bool{there: true}
	n.pass(2 * time.Second)
	n.hello("a", there)
	require.Equal(t, map[string][]string{"a": {here, there}}, n.settle(), "first where it was")
	require.Equal(t, map[string]string{"a": there}, n.urls())
}

func TestNobodyCanLeadAwayFromACameraThatAnswers(t *testing.T) {
	n := newNetwork(here, there)
	n.Heard(wsdiscovery.Endpoint{UUID: "a", Addresses: []string{here}, Scopes: []string{"own"}}, false, sender, n.now)
	n.settle()
	n.pass(2 * time.Second)
	n.Heard(wsdiscovery.Endpoint{UUID: "a", Addresses: []string{there}, Scopes: []string{"stolen"}}, true, sender, n.now)
	n.settle()
	require.Equal(t, []roster.Camera{{UUID: "a", URL: here, Scopes: []string{"own"}}}, n.Cameras())
}

func TestNobodyCanGiveAwayTheAddressOfACamera(t *testing.T) {
	n := newNetwork(here, there)
	n.match("a", here)
	n.settle()
	n.pass(2 * time.Second)
	stranger := netip.MustParseAddr("10.0.0.66")
	n.Heard(wsdiscovery.Endpoint{UUID: "a", Addresses: []string{there}}, true, stranger, n.now)
	n.Heard(wsdiscovery.Endpoint{UUID: "another", Addresses: []string{here}}, true, stranger, n.now)
	n.settle()
	require.Equal(t, here, n.urls()["a"])
}

func TestNobodyCanHideACameraThatWasAskedElsewhere(t *testing.T) {
	n := newNetwork(here)
	n.hello("a", there)
	n.settle()
	require.Zero(t, n.Pending(start))
	n.match("a", here)
	require.Equal(t, 1, n.Pending(start))
	n.pass(time.Second)
	n.settle()
	require.Equal(t, map[string]string{"a": here}, n.urls())
}

func TestNobodyCanHideACameraThatWasNotAskedYet(t *testing.T) {
	n := newNetwork(here)
	n.hello("a", there) // a lie, and while its address is asked ...
	checks := n.Due(n.now)
	n.match("a", here) // ... the truth
	n.hello("a", there)
	n.Settle(checks[0], roster.Answer{}, n.now)
	require.Equal(t, 1, n.Pending(start))
	n.pass(time.Second)
	n.settle()
	require.Equal(t, map[string]string{"a": here}, n.urls())
}

func TestAnAddressIsOneCameraAndACameraIsAtOneAddress(t *testing.T) {
	n := newNetwork(here, there)
	n.match("a", here, there)
	n.pass(time.Second)
	n.match("b", here)
	n.settle()
	require.Equal(t, map[string]string{"a": here}, n.urls(), "the first")
	for range 7 { // the camera has a new UUID: only that is heard
		n.pass(interval)
		n.match("b", here)
		n.settle()
	}
	require.Equal(t, map[string]string{"b": here}, n.urls())
}

func TestAddressesBestFirstAndUnusableOnesNever(t *testing.T) {
	for name, test := range map[string]struct {
		from      string
		addresses []string
		want      []string
	}{
		"http, routable, IPv4 first": {
			addresses: []string{"https://10.0.0.1/", "http://[fe80::1]/", "http://169.254.0.1/", "http://[fd00::1]/", "http://10.0.0.1/"},
			want:      []string{"http://10.0.0.1/", "http://[fd00::1]/", "http://169.254.0.1/", "http://[fe80::1]/"},
		},
		"names":                    {addresses: []string{"http://camera.local/"}, want: []string{"http://camera.local/"}},
		"of nobody or many":        {addresses: []string{"http://0.0.0.0/", "http://[::]/", "http://239.255.255.250/", "http://[ff02::c]/", here}, want: []string{here}},
		"loopback from elsewhere":  {addresses: []string{"http://127.0.0.1/", "http://localhost/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", here}, want: []string{here}},
		"loopback from loopback":   {from: "127.0.0.1", addresses: []string{"http://127.0.0.1/"}, want: []string{"http://127.0.0.1/"}},
		"the same twice":           {addresses: []string{here, here}, want: []string{here}},
		"none that can be reached": {addresses: []string{"http://0.0.0.0/"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork()
			from := sender
			if test.from != "" {
				from = netip.MustParseAddr(test.from)
			}
			n.Heard(wsdiscovery.Endpoint{UUID: "a", Addresses: test.addresses}, false, from, n.now)
			require.Equal(t, test.want, n.settle()["a"])
		})
	}
}

func TestZoneOfTheSenderGoesWithTheQuestion(t *testing.T) {
	n := newNetwork("http://[fe80::1]/")
	n.Heard(wsdiscovery.Endpoint{UUID: "a", Addresses: []string{"http://[fe80::1]/"}}, false, netip.MustParseAddr("fe80::1%eth0"), n.now)
	checks := n.Due(n.now)
	require.Equal(t, "eth0", checks[0].Zone)
	n.Settle(checks[0], roster.Answer{URL: "http://[fe80::1]/", ClockOffset: time.Hour}, n.now)
	require.Equal(t, []roster.Camera{{UUID: "a", URL: "http://[fe80::1]/", Zone: "eth0", ClockOffset: time.Hour}}, n.Cameras())
}

func TestWhatIsNoCameraIsAskedLessAndLessAndForgotten(t *testing.T) {
	n := newNetwork()
	n.match("a", here)
	n.Heard(wsdiscovery.Endpoint{UUID: "printer", Addresses: []string{there}, Foreign: true}, false, sender, n.now)
	asked := 0
	for range 120 {
		asked += len(n.settle())
		n.pass(time.Second)
	}
	require.Equal(t, 4, asked, "after 0, 10, 30 and 70 s")
	n.pass(time.Minute)
	require.Empty(t, n.settle())
	_, found := n.Next()
	require.False(t, found)
}

func TestStrangersCannotFillTheRoster(t *testing.T) {
	n := newNetwork()
	announce := func(from netip.Addr, i int) {
		n.Heard(wsdiscovery.Endpoint{UUID: fmt.Sprint(from, i), Addresses: []string{here}}, true, from, n.now)
	}
	for i := range 1000 {
		announce(sender, i)
	}
	require.Len(t, n.Due(n.now), 256, "of one sender")
	announce(netip.MustParseAddr("10.0.0.9"), 0)
	require.Len(t, n.Due(n.now), 1, "another may")
	for i := range 12_000 {
		announce(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), i)
	}
	require.Equal(t, 10_000, n.Pending(start), "of all")
}

func TestWhatStrangersSayTakesLittleMemory(t *testing.T) {
	r := roster.New(interval)
	scopes := []string{strings.Repeat("s", 8<<10)}
	say := func(uuid string, from byte, scopes []string) {
		said := wsdiscovery.Endpoint{UUID: uuid, Addresses: []string{here}, Scopes: scopes}
		r.Heard(said, true, netip.AddrFrom4([4]byte{10, 2, 0, from}), start)
	}
	say("small", 0, nil)
	for i := range 5_000 {
		say(fmt.Sprint(i), byte(i/200), scopes)
	}
	kept := r.Pending(start)
	require.Greater(t, kept, 1_500)
	require.Less(t, kept, 2_100, "16 MiB in all")
	say("small", 0, scopes)
	for _, check := range r.Due(start) {
		r.Settle(check, roster.Answer{URL: "http://10.0.0.9/" + check.UUID}, start)
	}
	for _, camera := range r.Cameras() {
		if camera.UUID == "small" {
			require.Empty(t, camera.Scopes, "who is there already cannot grow either")
		}
	}
	there := len(r.Cameras())
	require.Equal(t, kept, there)
}
