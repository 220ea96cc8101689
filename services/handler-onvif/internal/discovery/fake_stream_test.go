package discovery

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/handler"
	"akri.sh/libs/handler/handlertest"
)

// list has the properties of devices by id.
type list map[string]map[string]string

// fakeStream receives the lists of one Discover stream.
type fakeStream struct {
	t       *testing.T
	stopped <-chan error
	cancel  func()
	changed broadcast.Signal

	mu      sync.Mutex
	lists   []list // without repetitions
	sendErr error  // returned by send
}

func (h *harness) discover(t *testing.T, details string, properties map[string]string) *fakeStream {
	t.Helper()
	s := &fakeStream{t: t, changed: broadcast.NewSignal()}
	request := handler.Request{Details: details, Properties: map[string][]byte{}, Log: zap.NewNop()}
	for name, value := range properties {
		request.Properties[name] = []byte(value)
	}
	s.stopped, s.cancel = background(t, func(ctx context.Context) error { return h.Discover(ctx, request, s.send) })
	return s
}

func (s *fakeStream) send(devices []*handler.Device) error {
	handlertest.RequireAllowed(s.t, "onvif", "", devices...)
	sent := list{}
	for _, device := range devices {
		sent[device.GetId()] = device.GetProperties()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lists) == 0 || !reflect.DeepEqual(s.lists[len(s.lists)-1], sent) {
		s.lists = append(s.lists, sent)
		s.changed.Notify()
	}
	return s.sendErr
}

// all returns all lists.
func (s *fakeStream) all() []list {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lists)
}

// last returns the last list.
func (s *fakeStream) last(t *testing.T) list {
	t.Helper()
	lists := s.all()
	require.NotEmpty(t, lists, "no list was sent")
	return lists[len(lists)-1]
}
