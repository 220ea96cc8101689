// Package broker is a sample broker: it uses the devices that its pod was
// given and tells over HTTP what it found. A broker of your own needs nothing
// of it but the idea: Akri hands devices over as device nodes and environment
// variables, so any program in any language will do.
package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	headerTimeout = 5 * time.Second
	stopTimeout   = 5 * time.Second
)

// Config says what the broker was given.
type Config struct {
	// Pod and Node are where it runs; they are repeated in its answers.
	Pod, Node string
	// Environ is the process environment, "KEY=value" each.
	Environ []string
	// Logger receives what happens.
	Logger *slog.Logger
}

// Broker serves what it reads from its devices.
type Broker struct {
	config     Config
	properties map[string]string
}

// Report is the answer to GET /.
type Report struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
	// Devices are read anew for each report.
	Devices []Device `json:"devices"`
	// Env holds the properties of the devices, as Akri handed them over.
	Env map[string]string `json:"env"`
}

// New makes a broker for the devices in config's environment.
func New(config Config) *Broker {
	return &Broker{config: config, properties: Properties(config.Environ)}
}

// Run logs what the broker was given and serves HTTP on the listener until ctx ends.
func (b *Broker) Run(ctx context.Context, listener net.Listener) error {
	b.logStart()
	server := &http.Server{Handler: b.handler(), ReadHeaderTimeout: headerTimeout}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		stopped <- server.Shutdown(bounded)
	})
	err := server.Serve(listener)
	if stop() { // ctx has not ended: the server gave up by itself
		return fmt.Errorf("serve http: %w", err)
	}
	return errors.Join(ignoreClosed(err), <-stopped)
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (b *Broker) logStart() {
	report := b.report()
	for key, value := range report.Env {
		b.config.Logger.Info("property given", "env", key, "value", value)
	}
	for _, device := range report.Devices {
		b.config.Logger.Info("device read", "device", device)
	}
}

func (b *Broker) report() Report {
	return Report{Pod: b.config.Pod, Node: b.config.Node, Devices: readAll(b.properties), Env: b.properties}
}

func (b *Broker) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(b.report()); err != nil {
			b.config.Logger.Warn("answer cut short", "error", err)
		}
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	return mux
}
