package discovery

import (
	"context"
	"errors"
	"maps"
	"time"

	"google.golang.org/protobuf/proto"

	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/properties"
)

// errPropertiesChanged ends a stream that was opened with other values.
var errPropertiesChanged = errors.New("discoveryProperties have changed")

func (s *Session) resolve(ctx context.Context) (map[string]*discoveryv0.ByteData, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	return properties.Resolve(ctx, s.discoverer.Reader, s.Query.Namespace, s.Query.Properties)
}

// watchProperties calls end when the values differ from those that were sent. While values cannot
// be read, the stream stays open, because the devices that it found still exist.
func (s *Session) watchProperties(ctx context.Context, sent map[string]*discoveryv0.ByteData, end context.CancelCauseFunc) {
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.propertiesChanged:
		case <-retry:
		}
		retry = nil
		values, err := s.resolve(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, properties.ErrNotFound):
			s.fail(err)
		case err != nil:
			if errors.Is(err, properties.ErrForbidden) {
				s.fail(err)
			}
			retry = time.After(maxPropertyDelay)
		case !equal(values, sent):
			end(errPropertiesChanged)
			return
		default:
			s.clearFailure()
		}
	}
}

func equal(a, b map[string]*discoveryv0.ByteData) bool {
	return maps.EqualFunc(a, b, func(a, b *discoveryv0.ByteData) bool { return proto.Equal(a, b) })
}

// clearFailure removes the failure of an open stream after its properties could be read again.
func (s *Session) clearFailure() {
	s.mu.Lock()
	changed := (s.answered || s.silent) && s.failure != nil
	if changed {
		s.failure = nil
	}
	s.mu.Unlock()
	if changed {
		s.Notify()
	}
}
