// Package admin serves /metrics, /healthz and /readyz of a process over HTTP.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"akri.sh/libs/limits"
)

const (
	checkTimeout      = 2 * time.Second
	readHeaderTimeout = 2 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	// idleTimeout is longer than any common scrape interval, so that Prometheus can reuse its
	// connection.
	idleTimeout    = 5 * time.Minute
	maxHeaderBytes = 64 << 10
	// maxConnections is the number of connections of one address to a Guard. A Prometheus has one.
	maxConnections = 16
	// maxAllConnections is that of all addresses.
	maxAllConnections = 128
)

// Check returns an error that describes the problem, or nil.
type Check func(context.Context) error

// Health holds the liveness and readiness checks of a process. The zero value has no checks: it is
// live and ready.
type Health struct {
	mu              sync.Mutex
	liveness, ready map[string]Check
}

// AddLiveness adds a check to /healthz. While it fails, the process should be restarted.
func (h *Health) AddLiveness(name string, check Check) { h.add(&h.liveness, name, check) }

// AddReadiness adds a check to /readyz. While it fails, the process should get no requests.
func (h *Health) AddReadiness(name string, check Check) { h.add(&h.ready, name, check) }

func (h *Health) add(checks *map[string]Check, name string, check Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if *checks == nil {
		*checks = map[string]Check{}
	}
	(*checks)[name] = check
}

// Live runs the liveness checks. The error joins the errors of all that failed.
func (h *Health) Live(ctx context.Context) error { return h.run(ctx, &h.liveness) }

// Ready runs the readiness checks. The error joins the errors of all that failed.
func (h *Health) Ready(ctx context.Context) error { return h.run(ctx, &h.ready) }

func (h *Health) run(ctx context.Context, checks *map[string]Check) error {
	h.mu.Lock()
	current := maps.Clone(*checks)
	h.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(current)) {
		if err := current[name](ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Handler serves the three paths. Without metrics it serves no /metrics.
func Handler(health *Health, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	if metrics != nil {
		mux.Handle("GET /metrics", metricsHandler(metrics))
	}
	mux.HandleFunc("GET /healthz", serveCheck(health.Live))
	mux.HandleFunc("GET /readyz", serveCheck(health.Ready))
	return mux
}

func metricsHandler(metrics prometheus.Gatherer) http.Handler {
	// A gzip writer takes 1 MiB of memory for a page of some 10 KiB.
	return promhttp.HandlerFor(metrics, promhttp.HandlerOpts{DisableCompression: true})
}

func serveCheck(check Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		if err := check(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "ok")
	}
}

// Serve listens on the address and answers until ctx ends. With an empty address it only waits for
// ctx.
func Serve(ctx context.Context, address string, handler http.Handler) error {
	if address == "" {
		<-ctx.Done()
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on the admin address: %w", err)
	}
	return serve(ctx, listener, newServer(ctx, handler))
}

// Guard serves /metrics at an address of its own, with TLS, to the clients that it admits. The zero
// value leaves the metrics at the admin address, for anyone.
type Guard struct {
	Address     string
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Admit returns a handler that serves the requests of clients that may read the metrics, and
	// refuses others.
	Admit func(metrics http.Handler) http.Handler
	// RefusedConnections counts connections beyond the limits.
	RefusedConnections prometheus.Counter
}

// Enabled reports whether the Guard serves /metrics.
func (g *Guard) Enabled() bool { return g.Address != "" }

// Serve listens and answers until ctx ends.
func (g *Guard) Serve(ctx context.Context, metrics prometheus.Gatherer) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", g.Address)
	if err != nil {
		return fmt.Errorf("listen on the address of the metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", g.Admit(metricsHandler(metrics)))
	server := newServer(ctx, mux)
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: g.Certificate}
	// Any client can cause its lines, one for each failed handshake.
	server.ErrorLog = log.New(io.Discard, "", 0)
	// Without HTTP/2 a connection has one request at a time.
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	return serve(ctx, limits.Listen(listener, limits.Connections{PerSource: maxConnections, Total: maxAllConnections}, g.RefusedConnections), server)
}

func newServer(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
}

// serve answers until ctx ends, in plain text if the server has no TLSConfig.
func serve(ctx context.Context, listener net.Listener, server *http.Server) error {
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()

	var err error
	if server.TLSConfig == nil {
		err = server.Serve(listener)
	} else {
		err = server.ServeTLS(listener, "", "")
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admin requests: %w", err)
	}
	return nil
}
