package reviews

import (
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"akri.sh/libs/kube"
)

const (
	// An address can send failureBurst tokens that are not valid, then one in failureInterval.
	failureBurst    = 10
	failureInterval = 6 * time.Second
	// New tokens of all addresses are reviewed at this rate.
	newTokenRate, newTokenBurst = 10, 100

	maxAddresses = 4096
	// prefixBits of an IPv6 address are those of a network: a host can use all of its addresses.
	prefixBits = 64
)

// limits limits how many new tokens are reviewed.
type limits struct {
	all       *rate.Limiter
	addresses *kube.RateLimits // by network
}

func newLimits() *limits {
	return &limits{
		all:       rate.NewLimiter(newTokenRate, newTokenBurst),
		addresses: kube.NewRateLimits(maxAddresses, rate.Every(failureInterval), failureBurst),
	}
}

// admit returns an error if a new token of the address must not be reviewed now.
func (l *limits) admit(address string) error {
	if failures := l.failures(address); failures != nil {
		if remaining := kube.Remaining(failures); remaining > 0 {
			return &LimitError{remaining}
		}
	}
	if !l.all.Allow() {
		return &LimitError{time.Second}
	}
	return nil
}

// failed records that a token of the address was not valid.
func (l *limits) failed(address string) {
	if failures := l.failures(address); failures != nil {
		failures.Allow()
	}
}

// failures returns the limiter of the network of an address with a port. A proxy in the same Pod
// and kubectl port-forward send the requests of all users from loopback, which has none.
func (l *limits) failures(address string) *rate.Limiter {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil || parsed.Addr().IsLoopback() {
		return nil
	}
	network := parsed.Addr().Unmap()
	if network.Is6() {
		prefix, err := network.Prefix(prefixBits)
		if err != nil {
			return nil
		}
		network = prefix.Addr()
	}
	return l.addresses.Of(network)
}
