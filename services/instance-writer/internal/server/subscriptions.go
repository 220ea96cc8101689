package server

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"akri.sh/libs/broadcast"
)

// maxPending is more than the number of Instances that a node can see. A receiver with more pending
// changes has stopped receiving.
const maxPending = 50_000

// subscriptions passes changes of Instances to the streams of the nodes that they concern.
type subscriptions struct {
	mu     sync.Mutex
	byNode map[string]map[*subscription]struct{}
}

// subscription collects the names of the changed Instances of one node. A slow receiver may miss
// intermediate states, but not the latest state.
type subscription struct {
	// changed is set if take returns something or the subscription has overflowed.
	changed broadcast.Signal

	all      *subscriptions
	node     string
	pending  map[types.NamespacedName]struct{}
	overflow bool
}

func newSubscriptions() *subscriptions {
	return &subscriptions{byNode: map[string]map[*subscription]struct{}{}}
}

// subscribe returns a subscription to later changes. The caller closes it.
func (s *subscriptions) subscribe(node string) *subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := &subscription{changed: broadcast.NewSignal(), all: s, node: node, pending: map[types.NamespacedName]struct{}{}}
	if s.byNode[node] == nil {
		s.byNode[node] = map[*subscription]struct{}{}
	}
	s.byNode[node][added] = struct{}{}
	return added
}

// notify adds a changed Instance to the subscriptions of the nodes.
func (s *subscriptions) notify(instance types.NamespacedName, nodes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, node := range nodes {
		for subscription := range s.byNode[node] {
			subscription.add(instance)
		}
	}
}

func (s *subscription) add(instance types.NamespacedName) {
	if len(s.pending) >= maxPending {
		s.overflow = true
	} else {
		s.pending[instance] = struct{}{}
	}
	s.changed.Notify()
}

// take returns the Instances that have changed since the last call. It returns false after an
// overflow.
func (s *subscription) take() (changed map[types.NamespacedName]struct{}, ok bool) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	changed = s.pending
	s.pending = map[types.NamespacedName]struct{}{}
	return changed, !s.overflow
}

func (s *subscription) close() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	delete(s.all.byNode[s.node], s)
	if len(s.all.byNode[s.node]) == 0 {
		delete(s.all.byNode, s.node)
	}
}
