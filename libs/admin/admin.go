// Package admin serves the questions that every process answers: /metrics, /healthz and /readyz.
package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	checkTimeout = 2 * time.Second
	plain        = "text/plain; charset=utf-8"
)

// Check tells whether one thing is well; the error says what is not.
type Check func(context.Context) error

// Health collects the checks of a process. The zero value has none, and is healthy and ready.
type Health struct {
	mu         sync.Mutex
	live, wait map[string]Check
}

// AddLiveness adds a check of /healthz: when it fails the process should be restarted.
func (h *Health) AddLiveness(name string, check Check) { h.add(&h.live, name, check) }

// AddReadiness adds a check of /readyz: while it fails the process should get no requests.
func (h *Health) AddReadiness(name string, check Check) { h.add(&h.wait, name, check) }

func (h *Health) add(to *map[string]Check, name string, check Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if *to == nil {
		*to = map[string]Check{}
	}
	(*to)[name] = check
}

// Live runs the checks of /healthz; the error has all that is not well.
func (h *Health) Live(ctx context.Context) error { return h.run(ctx, &h.live) }

// Ready runs the checks of /readyz.
func (h *Health) Ready(ctx context.Context) error { return h.run(ctx, &h.wait) }

// Handler serves the three paths.
func Handler(health *Health, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	// Compressing a page this short would take 1 MiB that stays until the next one.
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{DisableCompression: true}))
	mux.HandleFunc("GET /healthz", serve(health.Live))
	mux.HandleFunc("GET /readyz", serve(health.Ready))
	return mux
}

func serve(check Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		if err := check(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", plain)
		fmt.Fprintln(w, "ok")
	}
}

func (h *Health) run(ctx context.Context, checks *map[string]Check) error {
	h.mu.Lock()
	todo := maps.Clone(*checks)
	h.mu.Unlock()
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(todo)) {
		if err := todo[name](ctx); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// Serve answers on the address until ctx ends. An empty address serves nothing.
func Serve(ctx context.Context, address string, handler http.Handler) error {
	if address == "" {
		<-ctx.Done()
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for admin requests: %w", err)
	}
	if err := newServer(handler).serve(ctx, listener); err != nil {
		return fmt.Errorf("serve admin requests: %w", err)
	}
	return nil
}
