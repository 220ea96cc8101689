// Package client sends the OPC UA discovery requests FindServers, FindServersOnNetwork and
// GetEndpoints. They need no session and no security.
package client

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/gopcua/opcua/ua"
)

const (
	// maxFindServersBytes limits all responses of a connection that requests servers.
	// maxEndpointsBytes does so for endpoints and is smaller: any server on the network gets that
	// request, many at the same time.
	maxFindServersBytes = 1 << 20
	maxEndpointsBytes   = 256 << 10
	// maxApplications limits how many applications of one response are used.
	maxApplications = 1000
)

// Application describes an OPC UA server or client.
type Application struct {
	URI  string
	Name string
	Type ua.ApplicationType
	URLs []string
}

// Client sends requests to OPC UA servers. It uses one connection per call of a method.
type Client struct {
	// DialTimeout limits connecting. Timeout limits a whole call, connecting included.
	DialTimeout, Timeout time.Duration
}

// Response is a response to FindServers.
type Response struct {
	// From is the address that responded.
	From         netip.Addr
	Applications []Application
	// OnNetwork has the URLs that a discovery server received by multicast.
	OnNetwork []string
}

// FindServers returns the applications that the server at the URL has registered: itself and, for a
// discovery server, all that registered with it.
func (c Client) FindServers(ctx context.Context, url string) (response Response, err error) {
	err = c.withConn(ctx, url, maxFindServersBytes, func(conn *conn) error {
		response.From = conn.remote()
		err := conn.request(&ua.FindServersRequest{EndpointURL: url}, &ua.FindServersResponse{},
			func(r *reader) { response.Applications = r.applications() })
		if err != nil {
			return fmt.Errorf("find servers: %w", err)
		}
		var urls []string
		// Most servers do not implement this service, so an error counts as an empty response.
		err = conn.request(&ua.FindServersOnNetworkRequest{}, &ua.FindServersOnNetworkResponse{},
			func(r *reader) { urls = r.serversOnNetwork() })
		if err == nil {
			response.OnNetwork = urls
		}
		return nil
	})
	return response, err
}

// GetEndpoints returns how the server at the URL describes itself, and the names of the security
// policies that it accepts, sorted.
func (c Client) GetEndpoints(ctx context.Context, url string) (self Application, policies []string, err error) {
	err = c.withConn(ctx, url, maxEndpointsBytes, func(conn *conn) error {
		err := conn.request(&ua.GetEndpointsRequest{EndpointURL: url}, &ua.GetEndpointsResponse{},
			func(r *reader) { self, policies = r.endpoints() })
		if err != nil {
			return fmt.Errorf("get endpoints: %w", err)
		}
		slices.Sort(policies)
		policies = slices.Compact(policies)
		return nil
	})
	return self, policies, err
}
