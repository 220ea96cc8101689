package coordinator

import (
	"context"
	"reflect"
	"time"

	"go.uber.org/zap"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/discovery-operator/internal/discovery"
	"akri.sh/services/discovery-operator/internal/inventory"
)

// sessionSet holds the Discover sessions of one Configuration, one for each endpoint of its
// handler.
type sessionSet struct {
	discoverer *discovery.Discoverer
	endpoints  *endpoints
	notify     func() // called when the result of a session changes

	query    discovery.Query
	since    time.Time // start of the grace; zero until the registrar has sent its table
	sessions map[endpointKey]session
}

type session struct {
	*discovery.Session
	endpoint *endpoint
}

func queryOf(configuration *akriv0.Configuration) discovery.Query {
	handler := configuration.Spec.DiscoveryHandler
	return discovery.Query{
		UID: string(configuration.UID), Namespace: configuration.Namespace, Name: configuration.Name,
		Handler: handler.Name, Details: handler.DiscoveryDetails, Properties: handler.DiscoveryProperties,
	}
}

// updateSessions creates or updates the sessions of a Configuration.
func (c *Coordinator) updateSessions(ctx context.Context, key string, query discovery.Query) *sessionSet {
	set := c.sessions[key]
	if set != nil && (set.query.UID != query.UID || set.query.Handler != query.Handler) {
		c.stopSessions(key) // the devices of another Configuration or handler must not be kept
		set = nil
	}
	if set == nil {
		set = &sessionSet{
			discoverer: c.Discoverer, endpoints: &c.endpoints, notify: func() { c.queue.add(key) },
			query: query, sessions: map[endpointKey]session{},
		}
		c.sessions[key] = set
	}
	if set.since.IsZero() && c.handlers != nil {
		set.since = time.Now()
	}
	set.update(ctx, query)
	return set
}

// stopSessions stops the sessions of a Configuration.
func (c *Coordinator) stopSessions(key string) {
	if set := c.sessions[key]; set != nil {
		for endpoint := range set.sessions {
			set.stopSession(endpoint)
		}
		c.Discoverer.Metrics.Delete(set.query.Name)
		delete(c.sessions, key)
	}
}

func (c *Coordinator) stopAll() {
	for key := range c.sessions {
		c.stopSessions(key)
	}
}

// update starts sessions for new endpoints and stops those of removed endpoints. If the query
// changed, it replaces all sessions. The devices of a replaced endpoint stay until all others have
// answered.
func (s *sessionSet) update(ctx context.Context, query discovery.Query) {
	changed := !reflect.DeepEqual(s.query, query)
	s.query = query
	endpoints := s.endpoints.of(query.Handler)
	for key, endpoint := range endpoints {
		if current, exists := s.sessions[key]; !exists || current.endpoint != endpoint || changed {
			s.start(ctx, key, endpoint)
		}
	}
	for key, session := range s.sessions {
		if endpoints[key] == nil && (!session.endpoint.replaced || s.answered(endpoints)) {
			s.stopSession(key)
		}
	}
}

// answered returns whether all endpoints have answered the query.
func (s *sessionSet) answered(endpoints map[endpointKey]*endpoint) bool {
	for key := range endpoints {
		if session, exists := s.sessions[key]; !exists || !session.Result().Answered {
			return false
		}
	}
	return true
}

// start starts a session and stops the previous one. The devices of the previous session stay until
// the handler answers. The connection stays open.
func (s *sessionSet) start(ctx context.Context, key endpointKey, endpoint *endpoint) {
	if err := s.endpoints.acquire(ctx, endpoint); err != nil {
		s.discoverer.Log.Error("connecting to the discovery handler failed",
			zap.String("handler", key.name), zap.String("endpoint", key.address), zap.Error(err))
		return
	}
	options := discovery.Options{Handler: endpoint.handler, Conn: endpoint.conn, Query: s.query, Notify: s.notify}
	if previous, exists := s.sessions[key]; exists {
		s.stopSession(key)
		options.Previous = previous.Result().Devices
	}
	s.sessions[key] = session{s.discoverer.Start(ctx, options), endpoint}
}

func (s *sessionSet) stopSession(key endpointKey) {
	s.sessions[key].Stop()
	s.endpoints.release(s.sessions[key].endpoint)
	delete(s.sessions, key)
}

// retry ends the backoff of a session after its handler has registered again.
func (s *sessionSet) retry(key endpointKey) {
	if session, exists := s.sessions[key]; exists {
		session.Retry()
	}
}

func (s *sessionSet) sources() []inventory.Source {
	sources := make([]inventory.Source, 0, len(s.sessions))
	for _, session := range s.sessions {
		result := session.Result()
		sources = append(sources, inventory.Source{
			Handler: session.endpoint.handler, Answered: result.Answered, Silent: result.Silent,
			Devices: result.Devices, Problems: result.Problems,
		})
	}
	return sources
}
