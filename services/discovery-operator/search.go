package operator

import (
	"context"
	"reflect"
	"time"

	"go.uber.org/zap"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/discovery-operator/internal/discovery"
	"akri.sh/services/discovery-operator/internal/inventory"
)

// search is one Configuration at all endpoints of its handler.
type search struct {
	env       discovery.Env
	endpoints *endpoints
	notify    func() // when a handler said something

	query discovery.Query
	// since when handlers have been looked for; zero until the registrar has been heard.
	since   time.Time
	streams map[endpointKey]stream
}

type stream struct {
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

// update opens the streams that are missing, closes those of endpoints that are gone and, when the query has changed,
// replaces all.
func (s *search) update(ctx context.Context, query discovery.Query) {
	changed := !reflect.DeepEqual(s.query, query)
	s.query = query
	wanted := s.endpoints.of(query.Handler)
	for key, endpoint := range wanted {
		if former, open := s.streams[key]; !open || former.endpoint != endpoint || changed {
			s.open(ctx, key, endpoint)
		}
	}
	for key := range s.streams {
		if wanted[key] == nil {
			s.close(key)
		}
	}
}

// open opens a stream in place of the one that may be there: devices found before stay until the new one has an answer.
// The connection outlives the change.
func (s *search) open(ctx context.Context, key endpointKey, endpoint *endpoint) {
	if err := s.endpoints.acquire(ctx, endpoint); err != nil {
		s.env.Log.Error("a registered endpoint cannot be dialled", zap.String("endpoint", key.address), zap.Error(err))
		return
	}
	ask := discovery.Ask{Handler: endpoint.handler, Link: endpoint.link, Query: s.query, Notify: s.notify}
	if former, exists := s.streams[key]; exists {
		s.close(key)
		ask.Former = former.Outcome().Devices
	}
	s.streams[key] = stream{discovery.Start(ctx, s.env, ask), endpoint}
}

func (s *search) close(key endpointKey) {
	s.streams[key].Stop()
	s.endpoints.release(s.streams[key].endpoint)
	delete(s.streams, key)
}

func (s *search) stop() {
	for key := range s.streams {
		s.close(key)
	}
}

func (s *search) kick(key endpointKey) {
	if open, exists := s.streams[key]; exists {
		open.Kick()
	}
}

func (s *search) sources() []inventory.Source {
	sources := make([]inventory.Source, 0, len(s.streams))
	for _, open := range s.streams {
		outcome := open.Outcome()
		sources = append(sources, inventory.Source{
			Handler: open.endpoint.handler, Heard: outcome.Heard, Devices: outcome.Devices, Problems: outcome.Problems,
		})
	}
	return sources
}
