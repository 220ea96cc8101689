// Package client asks OPC UA servers which servers they know and which endpoints they have, without a session and without
// security: discovery needs neither.
package client

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uacp"

	"akri.sh/services/handler-opcua/internal/servers"
)

const (
	// maxMessage and maxChunks are what servers are asked to keep to.
	maxMessage = 1 << 20
	maxChunks  = 64
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
	err = c.with(ctx, url, func(ctx context.Context, connection *opcua.Client) error {
		found, err := connection.FindServers(ctx)
		if err != nil {
			return fmt.Errorf("find servers: %w", err)
		}
		for _, one := range found.Servers[:min(len(found.Servers), maxApplications)] {
			if one != nil {
				known = append(known, application(one))
			}
		}
		onNetwork = findOnNetwork(ctx, connection)
		return nil
	})
	return known, onNetwork, err
}

// findOnNetwork returns URLs. Most servers do not have this service: no answer is as good as an empty one.
func findOnNetwork(ctx context.Context, connection *opcua.Client) (urls []string) {
	found, err := connection.FindServersOnNetwork(ctx)
	if err != nil {
		return nil
	}
	for _, one := range found.Servers[:min(len(found.Servers), maxApplications)] {
		if one != nil && !slices.Contains(one.ServerCapabilities, "LDS") {
			urls = append(urls, one.DiscoveryURL)
		}
	}
	return urls
}

// Endpoints returns what the server at the URL says of itself, and the names of the security policies that it accepts.
func (c Client) Endpoints(ctx context.Context, url string) (self servers.Application, policies []string, err error) {
	err = c.with(ctx, url, func(ctx context.Context, connection *opcua.Client) error {
		found, err := connection.GetEndpoints(ctx)
		if err != nil {
			return fmt.Errorf("get endpoints: %w", err)
		}
		for _, one := range found.Endpoints {
			if one == nil {
				continue
			}
			policies = append(policies, one.SecurityPolicyURI[strings.LastIndex(one.SecurityPolicyURI, "#")+1:])
			if one.Server != nil {
				self = application(one.Server)
			}
		}
		slices.Sort(policies)
		policies = slices.Compact(policies)
		return nil
	})
	return self, policies, err
}

func (c Client) with(ctx context.Context, url string, use func(context.Context, *opcua.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	connection, err := opcua.NewClient(url,
		opcua.ApplicationName("DiscoveryHandlerClient"), opcua.ApplicationURI("urn:DiscoveryHandlerClient"),
		opcua.SecurityMode(ua.MessageSecurityModeNone), opcua.AutoReconnect(false),
		opcua.Dialer(c.dialer()), opcua.RequestTimeout(c.Timeout),
	)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := connection.Dial(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }()
	return use(ctx, connection)
}

// dialer has limits of its own: the library's options for them would change those of the whole process.
func (c Client) dialer() *uacp.Dialer {
	return &uacp.Dialer{
		Dialer: &net.Dialer{Timeout: c.DialTimeout},
		ClientACK: &uacp.Acknowledge{
			ReceiveBufSize: uacp.DefaultReceiveBufSize, SendBufSize: uacp.DefaultSendBufSize,
			MaxMessageSize: maxMessage, MaxChunkCount: maxChunks,
		},
	}
}

func application(described *ua.ApplicationDescription) servers.Application {
	name := ""
	if described.ApplicationName != nil {
		name = described.ApplicationName.Text
	}
	return servers.Application{
		URI: described.ApplicationURI, Name: name, URLs: described.DiscoveryURLs,
		Type: servers.Type(described.ApplicationType), // same numbers: OPC 10000-4, ApplicationType
	}
}
