// Package catalog holds the Configurations as the messages that nodes receive. All streams share
// the messages.
package catalog

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	configurationv1 "akri.sh/proto/akri/configuration/v1"

	"akri.sh/services/instance-writer/internal/properties"
)

// Entry is one Configuration. It is immutable. Messages with the same content are the same pointer.
type Entry struct {
	// Full is for nodes with the handler, Denied for nodes that the Configuration does not allow,
	// and Public for all others.
	Full, Public, Denied *configurationv1.Configuration

	nodes *akriv0.AllowedNodes
}

// Receiver is a node that receives Configurations.
type Receiver struct {
	Node string
	// Labels of the Node that the API server does not let its kubelet set.
	Labels map[string]string
	// Handlers are the names of the Discovery Handlers of the node.
	Handlers map[string]bool
}

// Snapshot is a state of all Configurations. It is immutable.
type Snapshot struct {
	// Revision is the revision up to which the Snapshot has all changes.
	Revision uint64
	// Version increases with each change of the Entries. Most changes of Configurations are those
	// of their status, which nodes do not receive.
	Version uint64
	Entries map[types.NamespacedName]*Entry
	// Complete is false while properties of a Configuration without Entry have not been read.
	Complete bool
}

// Catalog holds the newest Snapshot.
type Catalog struct {
	list       func() []*akriv0.Configuration
	names      func() map[string]string
	revision   func() uint64
	properties *properties.Store
	changed    broadcast.Signal
	snapshot   broadcast.Value[Snapshot]
}

// New returns an empty Catalog of the Configurations that list returns. revision returns the
// revision up to which the list has all changes, and names the recorded names (akriv0.Owners).
// changed is set when a Configuration, a property or a recorded name has changed.
func New(
	list func() []*akriv0.Configuration, revision func() uint64, names func() map[string]string, store *properties.Store,
	changed broadcast.Signal,
) *Catalog {
	return &Catalog{list: list, revision: revision, names: names, properties: store, changed: changed}
}

// Get returns the newest Snapshot and a channel that is closed when there is a newer one.
func (c *Catalog) Get() (Snapshot, <-chan struct{}) { return c.snapshot.Get() }

// Run updates the Snapshot until ctx ends. The caches of the cluster must be complete.
func (c *Catalog) Run(ctx context.Context) {
	defer c.properties.Wait()
	for {
		c.update(ctx)
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		}
	}
}

func (c *Catalog) update(ctx context.Context) {
	previous, _ := c.snapshot.Get()
	next := Snapshot{
		Revision: c.revision(), // not newer than the Configurations
		Version:  previous.Version + 1,
		Entries:  make(map[types.NamespacedName]*Entry, len(previous.Entries)), Complete: true,
	}
	// A finalizer can keep a Configuration that is being deleted, and its author can still change
	// its details and the Secrets that they name. Nodes do not discover with them.
	configurations := slices.DeleteFunc(slices.Clone(c.list()), func(c *akriv0.Configuration) bool { return c.DeletionTimestamp != nil })
	owners := map[*akriv0.Configuration]bool{}
	for _, owner := range akriv0.Owners(c.names(), configurations) {
		owners[owner] = true
	}
	refs := map[properties.Ref]struct{}{}
	for _, configuration := range configurations {
		properties.Refs(refs, configuration.Namespace, configuration.Spec.DiscoveryHandler.DiscoveryProperties)
	}
	c.properties.Watch(ctx, refs)
	for _, configuration := range configurations {
		key := types.NamespacedName{Namespace: configuration.Namespace, Name: configuration.Name}
		entry := c.entry(configuration, owners[configuration], previous.Entries[key])
		if entry == nil {
			next.Complete = false
			continue
		}
		next.Entries[key] = entry
	}
	if maps.Equal(previous.Entries, next.Entries) {
		next.Entries, next.Version = previous.Entries, previous.Version
	}
	c.snapshot.Set(next)
}

// entry returns the previous Entry if nothing has changed, and while properties have not been read.
// A Configuration that does not have its name is not discovered, and no node gets its properties.
func (c *Catalog) entry(configuration *akriv0.Configuration, owner bool, previous *Entry) *Entry {
	if !owner {
		entry := newEntry(configuration, nil)
		entry.Full.NameTaken, entry.Public.NameTaken = true, true
		if previous != nil && proto.Equal(previous.Full, entry.Full) {
			return previous
		}
		return entry
	}
	handler := configuration.Spec.DiscoveryHandler
	values, problems, err := properties.Resolve(c.properties.Get, configuration.Namespace, handler.DiscoveryProperties)
	if err != nil {
		return previous
	}
	entry := newEntry(configuration, &configurationv1.DiscoveryRequest{
		Details: handler.DiscoveryDetails, Properties: values, Problems: problems,
		BrokerProperties: configuration.Spec.BrokerProperties,
	})
	switch {
	case previous == nil:
	case proto.Equal(previous.Full, entry.Full):
		return previous
	case proto.Equal(previous.Public, entry.Public):
		entry.Public, entry.Denied = previous.Public, previous.Denied // other nodes do not learn that a value has changed
	}
	return entry
}

func newEntry(configuration *akriv0.Configuration, request *configurationv1.DiscoveryRequest) *Entry {
	message := func(request *configurationv1.DiscoveryRequest) *configurationv1.Configuration {
		return &configurationv1.Configuration{
			Namespace: configuration.Namespace, Name: configuration.Name,
			Uid: string(configuration.UID), Generation: configuration.Generation,
			Created: timestamppb.New(configuration.CreationTimestamp.Time),
			Handler: configuration.Spec.DiscoveryHandler.Name, Request: request,
		}
	}
	entry := &Entry{Full: message(request), Public: message(nil), Denied: message(nil), nodes: configuration.Spec.Nodes}
	entry.Denied.NodeNotAllowed = true
	return entry
}

// Message returns the message for the receiver.
func (e *Entry) Message(receiver Receiver) *configurationv1.Configuration {
	switch {
	case !e.nodes.Allows(receiver.Node, receiver.Labels):
		return e.Denied
	case receiver.Handlers[e.Full.GetHandler()]:
		return e.Full
	default:
		return e.Public
	}
}
