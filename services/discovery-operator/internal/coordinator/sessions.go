package coordinator

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	configurationv1 "akri.sh/proto/akri/configuration/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/discovery"
	"akri.sh/services/discovery-operator/internal/inventory"
)

// sessionSet holds the Discover sessions of one Configuration, one for each endpoint of its
// handler.
type sessionSet struct {
	discoverer *discovery.Discoverer
	endpoints  *endpoints
	notify     func() // called when the result of a session changes

	query discovery.Query
	// resolved is true once the query has the values of its properties.
	resolved bool
	since    time.Time // start of the grace; zero until the registrar has sent its table
	sessions map[endpointKey]session
}

type session struct {
	*discovery.Session
	endpoint *endpoint
}

// updateSessions creates or updates the sessions of a Configuration.
func (c *Coordinator) updateSessions(ctx context.Context, key string, configuration *configurationv1.Configuration) *sessionSet {
	set := c.sessions[key]
	if set != nil && (set.query.UID != configuration.GetUid() || set.query.Handler != configuration.GetHandler()) {
		c.stopSessions(key) // the devices of another Configuration or handler must not be kept
		set = nil
	}
	if set == nil {
		set = &sessionSet{
			discoverer: c.Discoverer, endpoints: &c.endpoints, notify: func() { c.pending.add(key) },
			query: discovery.Query{
				UID: configuration.GetUid(), Namespace: configuration.GetNamespace(), Name: configuration.GetName(),
				Handler: configuration.GetHandler(),
			},
			sessions: map[endpointKey]session{},
		}
		c.sessions[key] = set
	}
	if set.since.IsZero() && c.handlers != nil {
		set.since = time.Now()
	}
	set.update(ctx, configuration.GetRequest())
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
// changed, it replaces all sessions. There are no sessions before the query is resolved. The
// devices of a replaced endpoint stay until all others have answered.
func (s *sessionSet) update(ctx context.Context, request *configurationv1.DiscoveryRequest) {
	changed := s.setRequest(request)
	endpoints := s.endpoints.of(s.query.Handler)
	if !s.resolved {
		endpoints = nil
	}
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

// setRequest updates the query and returns whether it has changed. Properties that have problems
// keep their values.
func (s *sessionSet) setRequest(request *configurationv1.DiscoveryRequest) (changed bool) {
	next := &discoveryv0.DiscoverRequest{
		DiscoveryDetails: request.GetDetails(), DiscoveryProperties: s.query.Request.GetDiscoveryProperties(),
	}
	referenced := s.query.Referenced
	switch {
	case request == nil: // the instance-writer does not know yet that the node has the handler
		s.resolved, next.DiscoveryProperties, referenced = false, nil, nil
	case len(request.GetProblems()) == 0:
		s.resolved, next.DiscoveryProperties, referenced = true, map[string]*discoveryv0.ByteData{}, nil
		for name, property := range request.GetProperties() {
			next.DiscoveryProperties[name] = &discoveryv0.ByteData{Vec: property.Value}
			if property.Value != nil && !property.GetLiteral() {
				referenced = append(referenced, name)
			}
		}
		slices.Sort(referenced)
	}
	changed = !proto.Equal(s.query.Request, next) || !slices.Equal(s.query.Referenced, referenced)
	s.query.Request, s.query.Referenced = next, referenced
	return changed
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

// sources returns the endpoints with a session, and the other endpoints of the handler, which have
// not answered.
func (s *sessionSet) sources() []inventory.Source {
	var sources []inventory.Source
	for _, session := range s.sessions {
		source := session.Result()
		source.Handler = session.endpoint.handler
		sources = append(sources, source)
	}
	for key, endpoint := range s.endpoints.of(s.query.Handler) {
		if _, exists := s.sessions[key]; !exists {
			sources = append(sources, inventory.Source{Handler: endpoint.handler})
		}
	}
	return sources
}
