package handler

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/rpc"
	discoveryv0 "akri.sh/proto/v0"
)

const (
	registrationSocket = "agent-registration.sock"
	registerTimeout    = 5 * time.Second
	registerLongest    = 10 * time.Second
	// alone is how long no stream may be open before the handler makes itself known again: Akri may have lost it.
	alone = 10 * time.Second
)

// stayRegistered registers, and again when Akri makes its socket anew or has not called for a while. It returns an
// error only when Akri refuses the handler for good.
func (s *Server) stayRegistered(ctx context.Context) error {
	made, err := watchSocket(ctx, s.flags.DiscoveryHandlersDirectory, s.log)
	if err != nil {
		// Not a reason to stop: the handler then only notices that nobody calls.
		s.log.Warn("watch handlers' folder", zap.Error(err))
	}
	for {
		if err := s.register(ctx, made); err != nil || ctx.Err() != nil {
			return err
		}
		if !s.presence.untilNeeded(ctx, made) {
			return nil
		}
	}
}

// register tries until Akri accepts, refuses for good or ctx ends. A new socket ends the wait between two attempts.
func (s *Server) register(ctx context.Context, made <-chan struct{}) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval = 100 * time.Millisecond
	wait.MaxInterval = registerLongest
	for attempt := 1; ; attempt++ {
		err := s.registerOnce(ctx)
		s.presence.registered(err)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			s.log.Debug("registered")
			return nil
		case status.Code(err) == codes.InvalidArgument:
			return fmt.Errorf("register handler %q: %w", s.identity.Name, err)
		}
		pause := wait.NextBackOff()
		s.log.Log(registerLevel(attempt), "register", zap.Error(err), zap.Int("attempt", attempt), zap.Duration("retry_in", pause))
		select {
		case <-ctx.Done():
			return nil
		case <-made:
			wait.Reset()
		case <-time.After(pause):
		}
	}
}

func (s *Server) registerOnce(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	address := "unix://" + filepath.Join(s.flags.DiscoveryHandlersDirectory, registrationSocket)
	conn, err := rpc.Dial(address, s.env.Metrics)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	_, err = discoveryv0.NewRegistrationClient(conn).RegisterDiscoveryHandler(ctx, s.registration())
	return err
}

// watchSocket tells through a channel of capacity 1 that the registration socket was made.
func watchSocket(ctx context.Context, directory string, log *zap.Logger) (<-chan struct{}, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := watcher.Add(directory); err != nil {
		return nil, errors.Join(err, watcher.Close())
	}
	made := make(chan struct{}, 1)
	go func() {
		defer func() { _ = watcher.Close() }()
		for {
			select {
			case <-ctx.Done():
				return
			case event := <-watcher.Events:
				if event.Has(fsnotify.Create) && filepath.Base(event.Name) == registrationSocket {
					notify(made)
				}
			case err := <-watcher.Errors:
				log.Debug("watch handlers' folder", zap.Error(err))
				notify(made) // events were lost: registering once too often is harmless
			}
		}
	}()
	return made, nil
}

func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
