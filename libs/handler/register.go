package handler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/filewatch"
	"akri.sh/libs/rpc"
	discoveryv0 "akri.sh/proto/v0"
)

const (
	registrationSocket = "agent-registration.sock"
	registerTimeout    = 5 * time.Second
	registerMaxBackoff = 10 * time.Second
	// unusedTimeout is how long no stream may be open before the handler registers again, because
	// the registrar may have lost the registration.
	unusedTimeout = 10 * time.Second
	// warnAttempt is the failed attempt that is logged as a warning. Earlier ones are normal at
	// start-up.
	warnAttempt = 5
)

// stayRegistered registers the handler, and again when the registration socket or that of the
// handler is created again, or no stream has been open for a while. It returns an error only if the
// registrar refuses the handler permanently.
func (s *Server) stayRegistered(ctx context.Context) error {
	created, stop := s.watchSockets()
	defer stop()
	for {
		if err := s.register(ctx, created); err != nil || ctx.Err() != nil {
			return err
		}
		if !s.awaitReason(ctx, created) {
			return nil
		}
	}
}

// awaitReason waits until the handler should register again. It returns false if ctx ended.
func (s *Server) awaitReason(ctx context.Context, created broadcast.Signal) bool {
	for {
		var unused <-chan time.Time
		if !s.state.used() {
			unused = time.After(unusedTimeout)
		}
		select {
		case <-ctx.Done():
			return false
		case <-created:
			return true
		case <-unused:
			return true
		case <-s.state.changed:
		}
	}
}

// register retries until the registrar accepts or permanently refuses the handler, or ctx ends. A
// recreated socket ends the delay between two attempts.
func (s *Server) register(ctx context.Context, created broadcast.Signal) error {
	delays := rpc.NewBackOff(100*time.Millisecond, registerMaxBackoff)
	for attempt := 1; ; attempt++ {
		err := s.registerOnce(ctx)
		s.state.registered(err)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			s.log.Debug("registered")
			return nil
		case status.Code(err) == codes.InvalidArgument:
			return fmt.Errorf("register handler %q: %w", s.identity.Name, err)
		}
		delay := delays.NextBackOff()
		level := zap.DebugLevel
		if attempt == warnAttempt {
			level = zap.WarnLevel
		}
		s.log.Log(level, "registration failed", zap.Error(err), zap.Int("attempt", attempt), zap.Duration("retry_in", delay))
		select {
		case <-ctx.Done():
			return nil
		case <-created:
			delays.Reset()
		case <-time.After(delay):
		}
	}
}

func (s *Server) registerOnce(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := rpc.Dial("unix://"+s.registrationSocket(), s.env.Metrics)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	_, err = discoveryv0.NewRegistrationClient(conn).RegisterDiscoveryHandler(ctx, s.registration())
	return err
}

// watchSockets returns a signal that is set when the registration socket or the handler's own
// socket is created again.
func (s *Server) watchSockets() (created broadcast.Signal, stop func()) {
	created = broadcast.NewSignal()
	stopOwn, stopRegistration := func() {}, notifyCreated(s.registrationSocket(), created)
	if s.flags.PodIP == "" {
		stopOwn = notifyCreated(s.socket(), created)
	}
	return created, func() { stopOwn(); stopRegistration() }
}

// notifyCreated sets the signal whenever another file has the path. A new file can have the inode
// of one that was removed.
func notifyCreated(path string, created broadcast.Signal) (stop func()) {
	last, _ := os.Lstat(path)
	return filewatch.Watch(path, func() {
		now, err := os.Lstat(path)
		if err == nil && (last == nil || !os.SameFile(now, last) || !now.ModTime().Equal(last.ModTime())) {
			created.Notify()
		}
		last = now
	})
}
