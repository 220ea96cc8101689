package rpc

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/failurelog"
	"akri.sh/libs/filewatch"
)

const (
	// rebindDelay is the time after which a path that has changed is bound again: `rm -r` of its
	// directory fails if it finds a new file.
	rebindDelay = 100 * time.Millisecond
	// rebindInterval is the time between two attempts to bind a socket again.
	rebindInterval = 500 * time.Millisecond
	// rebindTimeout limits the question whether another process serves the socket.
	rebindTimeout = time.Second
)

// Listen listens on `unix:///abs/path` or `host:port`. The mode of a unix socket is 0600.
func Listen(ctx context.Context, log *zap.Logger, address string) (*Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix://")
	if isUnix {
		return Socket{Path: path}.Listen(ctx, log)
	}
	listener, err := listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &Listener{address: address, current: listener, stop: func() {}}, nil
}

// ListenPrivate is Listen for a service whose sockets are for services of the node only. A
// directory that is named like its socket, such as /run/akri/registrar/registrar.sock, belongs to
// the service and gets the mode 0700: the kubelet creates it with mode 0755.
func ListenPrivate(ctx context.Context, log *zap.Logger, address string) (*Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix://")
	if !isUnix {
		return Listen(ctx, log, address)
	}
	directory := filepath.Base(filepath.Dir(path))
	return Socket{Path: path, private: directory+".sock" == filepath.Base(path)}.Listen(ctx, log)
}

// Listener is a listener that keeps a Unix socket at its path. Whenever the file is removed, also
// with its directory, the Listener binds the path again, at once or as soon as that is possible.
// Connections that are open stay open.
//
// A file that replaced that of the Listener is replaced in turn only if no process serves it. So a
// process that took the path over keeps it, and no two processes replace each other's file again
// and again. The Listener then has no clients, which Check reports, and takes the path when the
// other process has ended.
type Listener struct {
	address  string
	socket   Socket
	log      *zap.Logger
	failures *failurelog.Log
	stop     func() // stops keep

	mu      sync.Mutex
	current net.Listener // a *bound, or a TCP listener, which needs no path
	closed  bool
}

// Listen listens on the socket and keeps it at its path until the Listener is closed.
func (s Socket) Listen(ctx context.Context, log *zap.Logger) (*Listener, error) {
	first, err := s.bind(ctx)
	if err != nil {
		return nil, err
	}
	log = log.With(zap.String("socket", s.Path))
	l := &Listener{
		address: "unix://" + s.Path, socket: s, log: log, current: first,
		failures: failurelog.New(log, "listening on the socket again keeps failing", "listening on the socket works again"),
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	changed := broadcast.NewSignal()
	stopWatch := filewatch.Watch(s.Path, changed.Notify)
	keeping.Go(func() { l.keep(ctx, changed) })
	l.stop = func() {
		cancel()
		stopWatch()
		keeping.Wait()
	}
	return l, nil
}

// keep binds the path again when it has changed, until ctx ends. It begins with a look at the path,
// which was bound before it was watched.
func (l *Listener) keep(ctx context.Context, changed broadcast.Signal) {
	look := time.After(rebindDelay)
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			if look == nil {
				look = time.After(rebindDelay)
			}
			continue
		case <-look:
		case <-retry:
		}
		look, retry = nil, nil
		err := l.bindAgain(ctx)
		if ctx.Err() != nil {
			return
		}
		if l.failures.Record(err); err != nil {
			retry = time.After(rebindInterval)
		}
	}
}

// bindAgain binds the path unless clients reach the Listener. The previous listener is closed after
// that: no client can find it.
func (l *Listener) bindAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rebindTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	previous, isUnix := l.current.(*bound)
	if l.closed || !isUnix || previous.reachable() {
		return nil
	}
	next, err := l.socket.bind(ctx)
	if err != nil {
		return err
	}
	l.current = next
	_ = previous.Close()
	l.log.Warn("the socket file was removed or replaced; listening on a new one")
	return nil
}

// Check is a liveness check. It connects as clients do, and fails if the path cannot be bound again
// or another process serves it.
func (l *Listener) Check(ctx context.Context) error {
	if err := l.bindAgain(ctx); err != nil {
		return fmt.Errorf("clients cannot connect: %w", err)
	}
	return Probe(ctx, l.address)
}

func (l *Listener) listening() net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		current := l.listening()
		conn, err := current.Accept()
		if err == nil || current == l.listening() {
			return conn, err
		}
	}
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.listening().Addr() }

// Close implements net.Listener. It removes the socket file unless another process has replaced it.
func (l *Listener) Close() error {
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.current.Close()
}
