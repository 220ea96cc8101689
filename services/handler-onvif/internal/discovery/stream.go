package discovery

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	details "akri.sh/libs/details/onvif"
	"akri.sh/libs/handler"
	"akri.sh/libs/onvif"
	"akri.sh/services/handler-onvif/internal/cameras"
	"akri.sh/services/handler-onvif/internal/configuration"
)

const (
	// firstListTimeout is the maximum delay of the first list by slow cameras, after the
	// discoveryTimeoutSeconds of the Configuration.
	firstListTimeout = 15 * time.Second
	// firstListInterval is the interval of the test whether the first list is complete.
	firstListInterval = 100 * time.Millisecond
	// refreshInterval is the interval of queries to a camera. It is also the delay after refused
	// credentials, because cameras lock an account after several failures.
	refreshInterval = 5 * time.Minute
	// retryInterval is the delay after other failed queries.
	retryInterval = 10 * time.Second
)

// stream is the Discover stream of one Configuration.
type stream struct {
	prober      *Prober
	details     details.Details
	credentials configuration.Credentials
	log         *zap.Logger
	cameras     map[string]*camera // by UUID
	results     chan queryResult
	queries     sync.WaitGroup
}

// camera is a camera that matches the filters for endpoints.
type camera struct {
	cameras.Camera
	querying  bool
	nextQuery time.Time
	info      *info          // nil until the first query is complete
	listed    cameras.Camera // at the time of the last query
}

// info is what a camera reports about itself. Fields that it does not report are empty.
type info struct {
	onvif.Addresses
	onvif.Information
}

type queryResult struct {
	camera cameras.Camera
	info   info
	err    error
}

// Discover implements handler.Handler.
func (p *Prober) Discover(ctx context.Context, request handler.Request, send handler.Send) error {
	parsed, err := details.Parse(request.Details)
	if err != nil {
		return handler.Invalid(err)
	}
	s := &stream{prober: p, log: request.Log, details: parsed, cameras: map[string]*camera{}, results: make(chan queryResult)}
	if s.credentials, err = configuration.ParseCredentials(request.Properties); err != nil {
		s.log.Warn("invalid credentials are ignored", zap.Error(err))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer s.queries.Wait()
	defer cancel()
	return s.run(ctx, send)
}

func (s *stream) run(ctx context.Context, send handler.Send) error {
	changed, unsubscribe := s.prober.subscribe()
	defer unsubscribe()
	start, sent := time.Now(), false
	timer := time.NewTimer(firstListInterval)
	defer timer.Stop()
	for {
		found, complete := s.prober.cameras(s.details.Timeout())
		queried := s.update(ctx, found)
		if sent || complete && queried || time.Since(start) > s.details.Timeout()+firstListTimeout {
			if err := send(s.devices(found)); err != nil {
				return err
			}
			sent = true
		}
		timer.Reset(s.delay(sent))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case result := <-s.results:
			s.handle(result)
		case <-timer.C:
		}
		s.drainResults(ctx)
	}
}

// drainResults handles the results of the next batchDelay together, because each list has all
// cameras.
func (s *stream) drainResults(ctx context.Context) {
	sleep(ctx, batchDelay)
	for {
		select {
		case result := <-s.results:
			s.handle(result)
		default:
			return
		}
	}
}

// update starts queries to new and moved cameras, and removes cameras that are gone. It reports
// whether all cameras were queried at least once.
func (s *stream) update(ctx context.Context, found []cameras.Camera) (queried bool) {
	present, queried := make(map[string]bool, len(found)), true
	for _, f := range found {
		if !s.details.MatchesEndpoint(f.UUID, f.Scopes) {
			continue
		}
		present[f.UUID] = true
		c := s.cameras[f.UUID]
		if c == nil {
			c = &camera{}
			s.cameras[f.UUID] = c
		}
		moved := c.URL != f.URL
		c.Camera = f
		if !c.querying && (moved || !time.Now().Before(c.nextQuery)) {
			c.querying = true
			s.queries.Go(func() { s.query(ctx, f) })
		}
		queried = queried && c.info != nil
	}
	maps.DeleteFunc(s.cameras, func(uuid string, _ *camera) bool { return !present[uuid] })
	return queried
}

func (s *stream) query(ctx context.Context, c cameras.Camera) {
	ctx = s.prober.Policy.WithOrigin(ctx, c.Sender)
	target := onvif.Target{URL: c.URL, Zone: c.Sender.Addr.Zone(), ClockOffset: c.ClockOffset, Credentials: s.credentials.For(c.UUID)}
	result, client := queryResult{camera: c}, s.prober.Client
	result.info.Addresses, result.err = client.Addresses(ctx, target)
	if result.err == nil && s.details.DeviceInformation {
		result.info.Information, result.err = client.Information(ctx, target)
	}
	select {
	case s.results <- result:
	case <-ctx.Done():
	}
}

// handle updates a camera with the result of a query. After a failed query, it keeps the previous
// info.
func (s *stream) handle(result queryResult) {
	c := s.cameras[result.camera.UUID]
	if c == nil {
		return
	}
	c.querying = false
	if c.URL != result.camera.URL {
		c.nextQuery = time.Time{} // the camera moved during the query
		return
	}
	c.nextQuery = time.Now().Add(refreshInterval)
	moved := c.listed.URL != result.camera.URL
	c.listed = result.camera
	if result.err == nil {
		c.info = &result.info
		s.prober.reported(result.camera.UUID, result.info.Addresses)
		return
	}
	if !errors.Is(result.err, onvif.ErrNotAuthorized) {
		c.nextQuery = time.Now().Add(retryInterval)
	}
	s.log.Debug("querying camera failed", zap.String("device_id", result.camera.UUID), zap.Error(result.err))
	if c.info == nil || moved {
		c.info = &result.info
	}
}

// delay returns the time until the next query, or until the next test of the first list.
func (s *stream) delay(sent bool) time.Duration {
	if !sent {
		return firstListInterval
	}
	delay := refreshInterval
	for _, c := range s.cameras {
		if !c.querying {
			delay = min(delay, time.Until(c.nextQuery))
		}
	}
	return max(delay, 0)
}
