package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/inventory"
	"akri.sh/services/discovery-operator/internal/properties"
)

const (
	longestPause = 30 * time.Second
	// propertyPause is shorter: somebody is probably about to create the Secret.
	propertyPause = 5 * time.Second
	// steady is how long a stream must have lived for its end not to count as one more failure.
	steady = 10 * time.Second
	// resolveWithin bounds reading the Secrets and ConfigMaps of one Configuration.
	resolveWithin = 10 * time.Second
	// maxMessage bounds what a handler may put into the status of a Configuration.
	maxMessage = 2 << 10
)

// Query is what a handler is asked.
type Query struct {
	UID        string
	Namespace  string
	Name       string // of the Configuration
	Handler    string
	Details    string
	Properties []akriv0.DiscoveryProperty
}

// Outcome is what a handler last said.
type Outcome struct {
	// Heard: Devices is a list that answers the Query, not one from before it.
	Heard    bool
	Devices  []*discoveryv0.Device
	Problems []*instancev1.Problem
}

// Env is what sessions share.
type Env struct {
	Log      *zap.Logger
	Reader   properties.Reader
	Follower *properties.Follower
	Allow    inventory.Allow
	Metrics  Metrics
}

// Ask is what a Session is about.
type Ask struct {
	Handler *registrarv1.Handler
	Link    *Link
	Query   Query
	// Former are the devices of the Session that this one replaces.
	Former []*discoveryv0.Device
	// Notify is called when the Outcome changes. It must not block.
	Notify func()
}

// Session keeps one Discover stream open: one Query at one endpoint.
type Session struct {
	Ask
	env    Env
	kick   chan struct{}
	look   chan struct{} // capacity 1: what properties refer to may have changed
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	devices  []*discoveryv0.Device
	heard    bool
	rejected []*instancev1.Problem // devices of the last list
	failure  []*instancev1.Problem // of the last attempt
}

// Start opens a session, until Stop or until ctx ends.
func Start(ctx context.Context, env Env, ask Ask) *Session {
	ctx, cancel := context.WithCancel(ctx)
	env.Log = env.Log.With(zap.String("handler", ask.Handler.GetName()), zap.String("endpoint", ask.Handler.GetEndpoint()),
		zap.String("configuration", ask.Query.Namespace+"/"+ask.Query.Name))
	s := &Session{Ask: ask, env: env, devices: ask.Former, kick: make(chan struct{}, 1), look: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	go s.run(ctx)
	return s
}

// Outcome returns what the handler last said.
func (s *Session) Outcome() Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	problems := append(append([]*instancev1.Problem{}, s.failure...), s.rejected...)
	return Outcome{Heard: s.heard, Devices: s.devices, Problems: problems}
}

// Kick ends a pause: the handler has registered again.
func (s *Session) Kick() { notify(s.kick) }

func notify(channel chan<- struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}

// Stop ends the session; its Outcome stays.
func (s *Session) Stop() {
	s.cancel()
	<-s.done
}

func (s *Session) run(ctx context.Context) {
	defer close(s.done)
	defer s.env.Follower.Follow(ctx, properties.Refs(s.Query.Namespace, s.Query.Properties), func() { notify(s.look) })()
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 50*time.Millisecond, longestPause
	for {
		opened := time.Now()
		err := s.discover(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errRotated) {
			s.env.Log.Info("discoveryProperties changed: asking again")
			continue
		}
		s.fail(err)
		if time.Since(opened) > steady {
			pauses.Reset()
		}
		wait := pause(err, pauses)
		s.env.Log.Debug("discover ended", zap.Error(err), zap.Duration("retry_in", wait))
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
			pauses.Reset()
		case <-s.look:
		case <-time.After(wait):
		}
	}
}

// pause is short where the same question may soon have another answer.
func pause(err error, pauses *backoff.ExponentialBackOff) time.Duration {
	next := min(pauses.NextBackOff(), longestPause)
	switch {
	case errors.Is(err, properties.ErrNotFound), errors.Is(err, properties.ErrForbidden):
		return min(next, propertyPause)
	case status.Code(err) == codes.InvalidArgument:
		return longestPause
	default:
		return next
	}
}

// discover asks once and listens until the stream ends. It waits for the connection: that the handler cannot be
// reached is the Link's to tell.
func (s *Session) discover(ctx context.Context) error {
	values, err := s.resolve(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var rotation sync.WaitGroup
	rotation.Go(func() { s.awaitRotation(ctx, values, cancel) })
	defer func() { cancel(nil); rotation.Wait() }()
	opened := time.Now()
	stream, err := discoveryv0.NewDiscoveryHandlerClient(s.Link.conn).Discover(ctx, &discoveryv0.DiscoverRequest{
		DiscoveryDetails: s.Query.Details, DiscoveryProperties: values,
	}, grpc.WaitForReady(true))
	if err == nil {
		err = s.listen(ctx, stream, opened)
	}
	if cause := context.Cause(ctx); errors.Is(cause, errRotated) {
		return cause
	}
	return err
}

// listen takes lists until the stream ends, the newest when there are more than it takes.
func (s *Session) listen(ctx context.Context, stream stream, opened time.Time) error {
	lists, ended := receive(ctx, stream)
	pace := rate.NewLimiter(takeRate, takeBurst)
	answered := false
	for devices := range lists {
		if !answered {
			s.env.Metrics.answered(s.Query, time.Since(opened))
			answered = true
		}
		s.hear(devices)
		if err := pace.Wait(ctx); err != nil {
			break
		}
	}
	return <-ended
}

func (s *Session) resolve(ctx context.Context) (map[string]*discoveryv0.ByteData, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	return properties.Resolve(ctx, s.env.Reader, s.Query.Namespace, s.Query.Properties)
}

func (s *Session) hear(list []*discoveryv0.Device) {
	devices, rejected := inventory.Check(s.env.Allow, s.Handler.GetName(), s.Handler.GetEndpoint(), list)
	s.env.Log.Debug("handler sent its devices", zap.Int("devices", len(devices)), zap.Int("rejected", len(list)-len(devices)))
	s.mu.Lock()
	s.devices, s.heard, s.rejected, s.failure = devices, true, rejected, nil
	s.mu.Unlock()
	s.Notify()
}

// fail notes why there is no stream; devices stay: unreachable is not gone.
func (s *Session) fail(err error) {
	problem := s.problem(err)
	if problem == nil {
		return
	}
	s.env.Metrics.failed(s.Query)
	s.mu.Lock()
	news := len(s.failure) == 0 || s.failure[0].GetMessage() != problem.GetMessage()
	s.failure = []*instancev1.Problem{problem}
	s.mu.Unlock()
	if news {
		s.env.Log.Warn("discovery failed", zap.String("reason", problem.GetReason()), zap.Error(err))
		s.Notify()
	}
}

// problem is what a person should know; a stream that merely ended, or a handler that went away, is none.
func (s *Session) problem(err error) *instancev1.Problem {
	answer, _ := status.FromError(err)
	switch {
	case errors.Is(err, properties.ErrForbidden):
		return propertyProblem(akriv0.ReasonPropertyForbidden, err)
	case errors.Is(err, properties.ErrNotFound):
		return propertyProblem(akriv0.ReasonPropertyNotFound, err)
	case errors.Is(err, io.EOF), answer.Code() == codes.Unavailable, answer.Code() == codes.Canceled:
		return nil
	case answer.Code() == codes.InvalidArgument:
		return &instancev1.Problem{Reason: akriv0.ReasonInvalidDetails, Message: shorten(answer.Message())}
	default:
		return &instancev1.Problem{
			Reason:  akriv0.ReasonDiscoverFailed,
			Message: shorten(fmt.Sprintf("Discovery Handler %q at %s: %v", s.Handler.GetName(), s.Handler.GetEndpoint(), err)),
		}
	}
}

func propertyProblem(reason string, err error) *instancev1.Problem {
	return &instancev1.Problem{Reason: reason, Message: shorten(strings.ReplaceAll(err.Error(), "\n", "; "))}
}

// shorten keeps a message to a length that a status can bear.
func shorten(message string) string {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "..."
	}
	return message
}
