// Package broker is a sample broker. It reads the devices of its Pod and returns the result over
// HTTP. A broker can be written in any language: devices are device nodes and environment
// variables.
package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	headerTimeout   = 5 * time.Second
	shutdownTimeout = 5 * time.Second
)

// Config of the broker.
type Config struct {
	// Pod and Node are the names in each report.
	Pod, Node string
	// Environ is the process environment, with entries "KEY=value".
	Environ []string
	Logger  *slog.Logger
}

// Broker reads its devices and serves reports.
type Broker struct {
	config     Config
	properties map[string]string
}

// Report is the response to GET /.
type Report struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
	// Devices are read for each report.
	Devices []Device `json:"devices"`
	// Env contains the properties of the devices, by environment variable.
	Env map[string]string `json:"env"`
}

// New returns a broker for the devices in the environment.
func New(config Config) *Broker {
	return &Broker{config: config, properties: Properties(config.Environ)}
}

// Run logs the devices and their properties, and serves HTTP on the listener until ctx ends.
func (b *Broker) Run(ctx context.Context, listener net.Listener) error {
	b.LogDevices()
	server := &http.Server{Handler: b.handler(), ReadHeaderTimeout: headerTimeout}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		stopped <- server.Shutdown(shutdownCtx)
	})
	err := server.Serve(listener)
	if stop() { // ctx has not ended
		return fmt.Errorf("serve http: %w", err)
	}
	return <-stopped
}

// LogDevices reads the devices and logs them and their properties.
func (b *Broker) LogDevices() {
	report := b.report()
	for key, value := range report.Env {
		b.config.Logger.Info("device property", "env", key, "value", value)
	}
	for _, device := range report.Devices {
		b.config.Logger.Info("read device", "device", device)
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
			b.config.Logger.Warn("writing response failed", "error", err)
		}
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	return mux
}
