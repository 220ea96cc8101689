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

// errRotated ends a stream whose question has other properties now.
var errRotated = errors.New("discoveryProperties have changed")

// awaitRotation ends the stream when its properties have other values than it was opened with. While values cannot be
// read the stream goes on: what the handler finds with the old ones is there. One that is missing is reported.
func (s *Session) awaitRotation(ctx context.Context, asked map[string]*discoveryv0.ByteData, end context.CancelCauseFunc) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.look:
		case <-again:
		}
		again = nil
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
			again = time.After(propertyPause)
		case !same(values, asked):
			end(errRotated)
			return
		default:
			s.recover()
		}
	}
}

func same(a, b map[string]*discoveryv0.ByteData) bool {
	return maps.EqualFunc(a, b, func(a, b *discoveryv0.ByteData) bool { return proto.Equal(a, b) })
}

// recover takes back what fail said of an open stream.
func (s *Session) recover() {
	s.mu.Lock()
	news := s.heard && len(s.failure) > 0
	if news {
		s.failure = nil
	}
	s.mu.Unlock()
	if news {
		s.Notify()
	}
}
