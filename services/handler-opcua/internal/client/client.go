// Package client asks OPC UA servers which servers they know and which endpoints they have, without a session and without
// security: discovery needs neither.
package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gopcua/opcua/ua"

	"akri.sh/services/handler-opcua/internal/servers"
)

const (
	// maxKnown is how many bytes a server may say of those that it knows, and maxSelf of itself: anybody who is known to a
	// discovery server is asked that, many at once.
	maxKnown = 1 << 20
	maxSelf  = 256 << 10
	// maxApplications of one answer are looked at.
	maxApplications = 1000
)

// Client asks one question per connection.
type Client struct {
	// DialTimeout is for connecting, Timeout for all of it.
	DialTimeout, Timeout time.Duration
}

// FindServers returns the applications that the server at the URL knows: itself or, when it is a discovery server, all
// that registered with it, and those that it heard of on the network.
func (c Client) FindServers(ctx context.Context, url string) (known []servers.Application, onNetwork []string, err error) {
	err = c.converse(ctx, url, maxKnown, func(talk *conversation) error {
		err := talk.ask(&ua.FindServersRequest{EndpointURL: url}, &ua.FindServersResponse{}, func(r *reader) { known = r.applications() })
		if err != nil {
			return fmt.Errorf("find servers: %w", err)
		}
		var heard []string
		// Most servers do not have this service: no answer is as good as an empty one.
		if talk.ask(&ua.FindServersOnNetworkRequest{}, &ua.FindServersOnNetworkResponse{}, func(r *reader) { heard = r.onNetwork() }) == nil {
			onNetwork = heard
		}
		return nil
	})
	return known, onNetwork, err
}

// Endpoints returns what the server at the URL says of itself, and the names of the security policies that it accepts.
func (c Client) Endpoints(ctx context.Context, url string) (self servers.Application, policies []string, err error) {
	err = c.converse(ctx, url, maxSelf, func(talk *conversation) error {
		err := talk.ask(&ua.GetEndpointsRequest{EndpointURL: url}, &ua.GetEndpointsResponse{}, func(r *reader) { self, policies = r.endpoints() })
		if err != nil {
			return fmt.Errorf("get endpoints: %w", err)
		}
		slices.Sort(policies)
		policies = slices.Compact(policies)
		return nil
	})
	return self, policies, err
}
