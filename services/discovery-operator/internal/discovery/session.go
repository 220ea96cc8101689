// Package discovery connects to Discovery Handlers and runs Discover streams.
package discovery

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/rpc"
	"akri.sh/libs/tracing"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/inventory"
)

const (
	initialDelay = 50 * time.Millisecond
	maxDelay     = 30 * time.Second
	// stableAfter is the age of a stream that resets the backoff.
	stableAfter = 10 * time.Second
)

// Query is the request of a Configuration to a handler.
type Query struct {
	UID       string
	Namespace string
	Name      string // of the Configuration
	Handler   string
	Request   *discoveryv0.DiscoverRequest
	// Referenced are the names of properties with values of Secrets and ConfigMaps, sorted.
	Referenced []string
}

// Discoverer starts sessions. Its fields are shared by all of them.
type Discoverer struct {
	Log     *zap.Logger
	Policy  inventory.Policy
	Metrics Metrics
	// Grace is how long devices are kept while their handler has not registered, cannot be reached,
	// or sends no list to an open stream.
	Grace time.Duration
}

// Options of a Session.
type Options struct {
	Handler *registrarv1.Handler
	Conn    *Conn
	Query   Query
	// Previous are the devices of the session that this session replaces.
	Previous []*discoveryv0.Device
	// Notify is called when the Result changes. It must not block.
	Notify func()
}

// Session keeps one Discover stream open, for one Query at one endpoint.
type Session struct {
	Options
	discoverer *Discoverer
	log        *zap.Logger
	retry      broadcast.Signal
	cancel     context.CancelFunc
	done       chan struct{}

	mu       sync.Mutex
	devices  []*discoveryv0.Device
	answered bool
	silent   bool
	rejected []*instancev1.Problem // invalid devices of the last list
	failure  *instancev1.Problem   // of the last attempt
	list     inventory.Span        // of the last list
}

// Start returns a running session. It ends with ctx or Stop.
func (d *Discoverer) Start(ctx context.Context, options Options) *Session {
	ctx, cancel := context.WithCancel(ctx)
	s := &Session{
		Options: options, discoverer: d,
		log: d.Log.With(zap.String("handler", options.Handler.GetName()), zap.String("endpoint", options.Handler.GetEndpoint()),
			zap.String("configuration", options.Query.Namespace+"/"+options.Query.Name)),
		retry: broadcast.NewSignal(), cancel: cancel, done: make(chan struct{}), devices: options.Previous,
	}
	go s.run(ctx)
	return s
}

// Result returns the last answer of the handler. Its Devices are those of a previous session until
// the handler has answered.
func (s *Session) Result() inventory.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	var problems []*instancev1.Problem
	if s.failure != nil {
		problems = append(problems, s.failure)
	}
	return inventory.Source{
		Handler: s.Handler, Answered: s.answered, Silent: s.silent, Devices: s.devices, Problems: append(problems, s.rejected...),
		List: s.list,
	}
}

// Retry ends a retry delay, because the handler has registered again.
func (s *Session) Retry() { s.retry.Notify() }

// Stop ends the session. Its Result stays.
func (s *Session) Stop() {
	s.cancel()
	<-s.done
}

func (s *Session) run(ctx context.Context) {
	defer close(s.done)
	delays := rpc.NewBackOff(initialDelay, maxDelay)
	for {
		opened := time.Now()
		err := s.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		s.fail(err)
		if time.Since(opened) > stableAfter {
			delays.Reset()
		}
		s.wait(ctx, err, delays)
	}
}

// wait waits before the next attempt, unless the handler registers again.
func (s *Session) wait(ctx context.Context, err error, delays *backoff.ExponentialBackOff) {
	delay := retryDelay(err, delays)
	s.log.Debug("discover stream ended", zap.Error(err), zap.Duration("retry_in", delay))
	select {
	case <-ctx.Done():
	case <-s.retry:
		delays.Reset()
	case <-time.After(delay):
	}
}

func retryDelay(err error, delays *backoff.ExponentialBackOff) time.Duration {
	if status.Code(err) == codes.InvalidArgument {
		return maxDelay // the same request most likely gets the same answer
	}
	return min(delays.NextBackOff(), maxDelay)
}

// stream uses the lists of one stream until it ends. It waits for the connection: Conn has the
// status of an unreachable handler.
func (s *Session) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	if err := s.checkReferenced(); err != nil {
		return err
	}
	opened := time.Now()
	stream, err := discoveryv0.NewDiscoveryHandlerClient(s.Conn.current()).Discover(ctx, s.Query.Request, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	endSilence := s.beginSilence(ctx)
	defer endSilence()
	first := true
	return useLists(ctx, stream, func(list []*discoveryv0.Device) {
		endSilence()
		if first {
			s.discoverer.Metrics.succeeded(s.Query, time.Since(opened))
			first = false
		}
		s.use(ctx, list)
	})
}

// checkReferenced refuses to send values of Secrets and ConfigMaps over the network: the connection
// is in plain text, and anyone can be at its other end.
func (s *Session) checkReferenced() error {
	if !s.Conn.target.network() || len(s.Query.Referenced) == 0 {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "discoveryProperties %q are from Secrets or ConfigMaps and are not sent to %s, which is at a network address: "+
		"the connection is in plain text; register the handler at a socket of the node (chart value useNetworkConnection=false)",
		s.Query.Referenced, name(s.Handler))
}

func (s *Session) use(ctx context.Context, list []*discoveryv0.Device) {
	ctx, span := tracing.Start(ctx, "receive list of devices",
		attribute.String("akri.handler", s.Handler.GetName()), attribute.String("akri.configuration", s.Query.Namespace+"/"+s.Query.Name),
		attribute.Int("akri.devices", len(list)))
	defer span.End()
	devices, rejected := inventory.Validate(s.discoverer.Policy, inventory.List{
		Handler: s.Handler.GetName(), Endpoint: s.Handler.GetEndpoint(), Details: s.Query.Request.GetDiscoveryDetails(),
		Devices: list, Previous: s.Result().Devices,
	})
	s.log.Debug("list of devices received", zap.Int("devices", len(devices)), zap.Int("rejected", len(list)-len(devices)))
	s.mu.Lock()
	s.devices, s.answered, s.silent, s.rejected, s.failure = devices, true, false, rejected, nil
	s.list = inventory.Span{Traceparent: tracing.Parent(ctx), Started: time.Now()}
	s.mu.Unlock()
	s.Notify()
}

// fail records why there is no stream. The devices stay: an unreachable handler does not mean that
// they are gone.
func (s *Session) fail(err error) {
	problem := problemOf(err, s.Handler)
	if problem == nil {
		return
	}
	s.discoverer.Metrics.failed(s.Query)
	s.mu.Lock()
	changed := s.failure == nil || s.failure.GetMessage() != problem.GetMessage()
	s.failure = problem
	s.mu.Unlock()
	if changed {
		s.log.Warn("discovery failed", zap.String("reason", problem.GetReason()), zap.Error(err))
		s.Notify()
	}
}

// A handler may send lists at any rate. Each used list may cause writes to the API server, so
// only the newest is used after a burst. Beyond the rate of reading, flow control makes the
// handler wait.
const (
	useBurst, useRate   = 50, 10 // lists, lists per second
	readBurst, readRate = 1000, 500
)

type discoverStream = grpc.ServerStreamingClient[discoveryv0.DiscoverResponse]

// useLists calls use with the lists of a stream, at most at the rate of use and always with the
// newest list. It returns the reason when the stream ends.
func useLists(ctx context.Context, stream discoverStream, use func([]*discoveryv0.Device)) error {
	lists, ended := receive(ctx, stream)
	limiter := rate.NewLimiter(useRate, useBurst)
	for list := range lists {
		use(list)
		if err := limiter.Wait(ctx); err != nil {
			break
		}
	}
	return <-ended
}

// receive reads the stream in the background until it ends. lists holds the newest list and is
// closed at the end of the stream; ended then holds the reason.
func receive(ctx context.Context, stream discoverStream) (lists <-chan []*discoveryv0.Device, ended <-chan error) {
	newest, end := make(chan []*discoveryv0.Device, 1), make(chan error, 1)
	limiter := rate.NewLimiter(readRate, readBurst)
	go func() {
		defer close(newest)
		for {
			response, err := stream.Recv()
			if err != nil {
				end <- err
				return
			}
			select {
			case <-newest:
			default:
			}
			newest <- response.GetDevices()
			_ = limiter.Wait(ctx) // Recv returns the error of ctx
		}
	}()
	return newest, end
}
