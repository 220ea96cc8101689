package service

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// ServeHTTP serves until ctx ends, and then answers the requests in progress for up to a time. It
// serves plain text if the server has no TLSConfig.
func ServeHTTP(ctx context.Context, server *http.Server, listener net.Listener, stopTimeout time.Duration) error {
	served := make(chan error, 1)
	go func() {
		if server.TLSConfig == nil {
			served <- server.Serve(listener)
		} else {
			served <- server.ServeTLS(listener, "", "")
		}
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}

	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if server.Shutdown(stopping) != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Delay returns a context that ends some time after the given one.
func Delay(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	delayed, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return delayed, cancel
}
