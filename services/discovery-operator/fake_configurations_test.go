package operator_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"akri.sh/libs/broadcast"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
)

// fakeConfigurations serves Configurations, one in each part of a snapshot.
type fakeConfigurations struct {
	configurationv1.UnimplementedConfigurationServiceServer
	mu       sync.Mutex // serializes changes
	current  broadcast.Value[map[string]*configurationv1.Configuration]
	revision uint64
	requests broadcast.Value[[]*configurationv1.WatchConfigurationsRequest] // all that were received
}

func (c *fakeConfigurations) change(change func(map[string]*configurationv1.Configuration)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision++
	current, _ := c.current.Get()
	next := map[string]*configurationv1.Configuration{}
	maps.Copy(next, current)
	change(next)
	c.current.Set(next)
}

// create adds a Configuration that is younger than all others.
func (c *fakeConfigurations) create(configuration *configurationv1.Configuration) {
	c.change(func(all map[string]*configurationv1.Configuration) {
		configuration.Uid = fmt.Sprint("uid-", c.revision)
		configuration.Created = &timestamppb.Timestamp{Seconds: int64(c.revision)}
		all[configuration.GetNamespace()+"/"+configuration.GetName()] = configuration
	})
}

func (c *fakeConfigurations) update(key string, change func(*configurationv1.Configuration)) {
	c.change(func(all map[string]*configurationv1.Configuration) {
		all[key] = proto.CloneOf(all[key])
		change(all[key])
	})
}

func (c *fakeConfigurations) delete(key string) {
	c.change(func(all map[string]*configurationv1.Configuration) { delete(all, key) })
}

// received returns all requests.
func (c *fakeConfigurations) received() []*configurationv1.WatchConfigurationsRequest {
	requests, _ := c.requests.Get()
	return requests
}

type configurationStream = grpc.BidiStreamingServer[configurationv1.WatchConfigurationsRequest, configurationv1.WatchConfigurationsResponse]

func (c *fakeConfigurations) WatchConfigurations(stream configurationStream) error {
	requests, ended := make(chan *configurationv1.WatchConfigurationsRequest), make(chan error, 1)
	go func() {
		for {
			request, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			requests <- request
		}
	}()
	var sent map[string]*configurationv1.Configuration // nil before the snapshot
	var handlers []string
	var changed <-chan struct{}
	for {
		select {
		case err := <-ended:
			return err
		case request := <-requests:
			c.mu.Lock()
			c.requests.Set(append(slices.Clone(c.received()), request))
			c.mu.Unlock()
			handlers = request.GetHandlers()
		case <-changed:
		}
		var all map[string]*configurationv1.Configuration
		all, changed = c.current.Get()
		visible := map[string]*configurationv1.Configuration{}
		for key, configuration := range all {
			visible[key] = configuration
			if !slices.Contains(handlers, configuration.GetHandler()) {
				visible[key] = proto.CloneOf(configuration)
				visible[key].Request = nil
			}
		}
		if err := c.send(stream, sent, visible); err != nil {
			return err
		}
		sent = visible
	}
}

func (c *fakeConfigurations) send(stream configurationStream, sent, visible map[string]*configurationv1.Configuration) error {
	c.mu.Lock()
	revision := c.revision
	c.mu.Unlock()
	if sent == nil {
		for _, configuration := range visible {
			part := &configurationv1.ConfigurationSnapshot{Configurations: []*configurationv1.Configuration{configuration}}
			if err := stream.Send(snapshotPart(part, revision)); err != nil {
				return err
			}
		}
		return stream.Send(snapshotPart(&configurationv1.ConfigurationSnapshot{Last: true}, revision))
	}
	for key, configuration := range visible {
		if proto.Equal(sent[key], configuration) {
			continue
		}
		event := &configurationv1.WatchConfigurationsResponse_Updated{Updated: configuration}
		if err := stream.Send(&configurationv1.WatchConfigurationsResponse{Event: event, Revision: revision}); err != nil {
			return err
		}
	}
	for key, configuration := range sent {
		if visible[key] != nil {
			continue
		}
		removed := &configurationv1.ConfigurationKey{Namespace: configuration.GetNamespace(), Name: configuration.GetName()}
		event := &configurationv1.WatchConfigurationsResponse_Removed{Removed: removed}
		if err := stream.Send(&configurationv1.WatchConfigurationsResponse{Event: event, Revision: revision}); err != nil {
			return err
		}
	}
	return nil
}

func snapshotPart(part *configurationv1.ConfigurationSnapshot, revision uint64) *configurationv1.WatchConfigurationsResponse {
	return &configurationv1.WatchConfigurationsResponse{
		Event: &configurationv1.WatchConfigurationsResponse_Snapshot{Snapshot: part}, Revision: revision,
	}
}
