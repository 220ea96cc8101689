// Package configurations receives the Configurations from the instance-writer. While the
// instance-writer cannot be reached, the last ones stay in effect.
package configurations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/rpc"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
)

const maxRetryDelay = 5 * time.Second

type clientStream = grpc.BidiStreamingClient[
	configurationv1.WatchConfigurationsRequest, configurationv1.WatchConfigurationsResponse]

// Client keeps one WatchConfigurations stream to the instance-writer open.
type Client struct {
	*Store
	log      *zap.Logger
	node     string
	client   configurationv1.ConfigurationServiceClient
	handlers broadcast.Value[[]string]
	revision uint64 // the newest that was received
}

// New returns a Client. It starts nothing.
func New(log *zap.Logger, node string, conn grpc.ClientConnInterface) *Client {
	return &Client{Store: newStore(), log: log, node: node, client: configurationv1.NewConfigurationServiceClient(conn)}
}

// SetHandlers sets the names of the node's handlers, sorted. Only the Configurations of these
// handlers are received with their discovery request.
func (c *Client) SetHandlers(handlers []string) {
	if current, _ := c.handlers.Get(); !slices.Equal(current, handlers) {
		c.handlers.Set(handlers)
	}
}

// CheckReady is a readiness check: it fails until all Configurations have been received once.
func (c *Client) CheckReady(context.Context) error {
	select {
	case <-c.Received():
		return nil
	default:
		return errors.New("no Configurations received from the instance-writer yet")
	}
}

// Run receives Configurations until ctx ends.
func (c *Client) Run(ctx context.Context) {
	rpc.Keep(ctx, c.log, maxRetryDelay, func(ctx context.Context, healthy func()) error {
		ctx, cancel := context.WithCancel(ctx)
		stream, err := c.client.WatchConfigurations(ctx)
		if err != nil {
			cancel()
			return fmt.Errorf("open Configuration watch: %w", err)
		}
		var sending sync.WaitGroup
		revision := c.revision
		sending.Go(func() { c.sendHandlers(ctx, stream, revision) })
		defer func() { cancel(); sending.Wait() }()
		return c.receive(stream, healthy)
	})
}

// sendHandlers sends the handlers now and after each change until ctx ends. If sending fails,
// receiving fails, too.
func (c *Client) sendHandlers(ctx context.Context, stream clientStream, revision uint64) {
	for ; ; revision = 0 {
		handlers, changed := c.handlers.Get()
		request := &configurationv1.WatchConfigurationsRequest{Node: c.node, Handlers: handlers, Revision: revision}
		if stream.Send(request) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (c *Client) receive(stream clientStream, healthy func()) error {
	var snapshot []*configurationv1.Configuration
	for {
		response, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive Configurations: %w", err)
		}
		healthy()
		switch event := response.GetEvent().(type) {
		case *configurationv1.WatchConfigurationsResponse_Snapshot:
			snapshot = append(snapshot, event.Snapshot.GetConfigurations()...)
			if !event.Snapshot.GetLast() {
				continue
			}
			c.replace(snapshot)
			snapshot = nil
		case *configurationv1.WatchConfigurationsResponse_Updated:
			c.put(event.Updated)
		case *configurationv1.WatchConfigurationsResponse_Removed:
			c.remove(event.Removed.GetNamespace() + "/" + event.Removed.GetName())
		}
		c.revision = response.GetRevision()
	}
}
