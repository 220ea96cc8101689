package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	configurationv1 "akri.sh/proto/akri/configuration/v1"

	"akri.sh/services/instance-writer/internal/catalog"
)

const (
	// maxHandlers is twice the size of the table of the registrar.
	maxHandlers = 2000
	// maxPartBytes is the size of a part of a snapshot, which gRPC buffers for each stream. After a
	// restart, all nodes receive snapshots at once.
	maxPartBytes = 64 << 10
	// revisionTimeout is how long a replica waits for a revision that a node has received from
	// another one. After the API server was restored from a backup, the revision never arrives.
	revisionTimeout = 5 * time.Second
)

// ConfigurationServer implements configurationv1.ConfigurationServiceServer.
type ConfigurationServer struct {
	configurationv1.UnimplementedConfigurationServiceServer

	Catalog *catalog.Catalog
	// Labels returns the labels of a Node that its kubelet cannot set. A change of them is a change
	// of the Catalog.
	Labels func(node string) map[string]string
	// Stopping and ConnectionLost are as in Options.
	Stopping       <-chan struct{}
	ConnectionLost func() <-chan struct{}
}

type configurationServerStream = grpc.BidiStreamingServer[
	configurationv1.WatchConfigurationsRequest, configurationv1.WatchConfigurationsResponse]

// configurationStream is a WatchConfigurations stream. It holds no messages: those that it has sent
// follow from the receiver and the Snapshot.
type configurationStream struct {
	configurationServerStream
	revision uint64 // that the snapshot must have
	started  bool   // the snapshot was sent
	receiver catalog.Receiver
	version  uint64 // that was sent; 0 if the receiver has changed since
	sent     map[types.NamespacedName]*catalog.Entry
	sentTo   catalog.Receiver // the receiver when sent was sent
}

type handlerSet = map[string]bool

// WatchConfigurations sends a snapshot, then each change.
func (s *ConfigurationServer) WatchConfigurations(stream configurationServerStream) error {
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("receive request: %w", err)
	}
	if err := validateWatch(first, first.GetNode()); err != nil {
		return toStatus(err)
	}
	lost := s.ConnectionLost()
	select {
	case <-lost:
		return errConnectionLost
	default:
	}
	// Recv fails when this call returns, which ends the goroutine.
	handlers, received := make(chan handlerSet), make(chan error, 1)
	go func() { received <- receiveHandlers(stream, first.GetNode(), handlers) }()
	configurations := &configurationStream{
		configurationServerStream: stream, revision: first.GetRevision(),
		receiver: catalog.Receiver{Node: first.GetNode(), Handlers: handlersOf(first)},
	}
	expired := time.After(revisionTimeout)
	for {
		snapshot, changed := s.Catalog.Get()
		configurations.setLabels(s.Labels(first.GetNode()))
		if err := configurations.send(snapshot); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-s.Stopping:
			return errStopping
		case <-lost:
			return errConnectionLost
		case err := <-received:
			return err
		case configurations.receiver.Handlers = <-handlers:
			configurations.version = 0
		case <-expired:
			configurations.revision = 0
		case <-changed:
		}
	}
}

func validateWatch(request *configurationv1.WatchConfigurationsRequest, node string) error {
	switch count := len(request.GetHandlers()); {
	case request.GetNode() == "":
		return invalidRequestError("node must not be empty")
	case request.GetNode() != node:
		return invalidRequestError(fmt.Sprintf("node must be %q on this stream, but is %q", node, request.GetNode()))
	case count > maxHandlers:
		return invalidRequestError(fmt.Sprintf("a node has at most %d handlers, but this one has %d", maxHandlers, count))
	default:
		return nil
	}
}

func handlersOf(request *configurationv1.WatchConfigurationsRequest) handlerSet {
	handlers := make(handlerSet, len(request.GetHandlers()))
	for _, name := range request.GetHandlers() {
		handlers[name] = true
	}
	return handlers
}

// receiveHandlers passes the handlers of each request until the node closes its side of the stream.
func receiveHandlers(stream configurationServerStream, node string, handlers chan<- handlerSet) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive request: %w", err)
		}
		if err := validateWatch(request, node); err != nil {
			return toStatus(err)
		}
		select {
		case handlers <- handlersOf(request):
		case <-stream.Context().Done():
			return context.Cause(stream.Context())
		}
	}
}

func (s *configurationStream) setLabels(labels map[string]string) {
	if !maps.Equal(labels, s.receiver.Labels) {
		s.receiver.Labels, s.version = labels, 0
	}
}

// send sends the snapshot once it is complete and has the revision, and changes after that.
func (s *configurationStream) send(snapshot catalog.Snapshot) error {
	var err error
	switch {
	case s.started && s.version == snapshot.Version:
		return nil
	case s.started:
		err = s.sendChanges(snapshot)
	case snapshot.Complete && snapshot.Revision >= s.revision:
		s.started = true
		err = s.sendSnapshot(snapshot)
	default:
		return nil
	}
	s.version, s.sent, s.sentTo = snapshot.Version, snapshot.Entries, s.receiver
	return err
}

func (s *configurationStream) sendSnapshot(snapshot catalog.Snapshot) error {
	part, size := &configurationv1.ConfigurationSnapshot{}, 0
	for _, entry := range snapshot.Entries {
		message := entry.Message(s.receiver)
		bytes := proto.Size(message)
		if size > 0 && size+bytes > maxPartBytes {
			if err := s.sendPart(part, snapshot.Revision); err != nil {
				return err
			}
			part, size = &configurationv1.ConfigurationSnapshot{}, 0
		}
		part.Configurations = append(part.Configurations, message)
		size += bytes
	}
	part.Last = true
	return s.sendPart(part, snapshot.Revision)
}

func (s *configurationStream) sendPart(part *configurationv1.ConfigurationSnapshot, revision uint64) error {
	return s.sendEvent(&configurationv1.WatchConfigurationsResponse{
		Event: &configurationv1.WatchConfigurationsResponse_Snapshot{Snapshot: part}, Revision: revision,
	})
}

// sendChanges sends the difference to what was sent.
func (s *configurationStream) sendChanges(snapshot catalog.Snapshot) error {
	for key, entry := range snapshot.Entries {
		message := entry.Message(s.receiver)
		if sent := s.sent[key]; sent != nil && sent.Message(s.sentTo) == message {
			continue
		}
		err := s.sendEvent(&configurationv1.WatchConfigurationsResponse{
			Event: &configurationv1.WatchConfigurationsResponse_Updated{Updated: message}, Revision: snapshot.Revision,
		})
		if err != nil {
			return err
		}
	}
	for key := range s.sent {
		if snapshot.Entries[key] != nil {
			continue
		}
		removed := &configurationv1.ConfigurationKey{Namespace: key.Namespace, Name: key.Name}
		err := s.sendEvent(&configurationv1.WatchConfigurationsResponse{
			Event: &configurationv1.WatchConfigurationsResponse_Removed{Removed: removed}, Revision: snapshot.Revision,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *configurationStream) sendEvent(response *configurationv1.WatchConfigurationsResponse) error {
	if err := s.Send(response); err != nil {
		return fmt.Errorf("send Configurations: %w", err)
	}
	return nil
}
