package handler

import (
	"context"
	"time"

	"go.uber.org/zap"

	discoveryv0 "akri.sh/proto/v0"
)

// Device is a discovered device. The Id of a device must never change.
type Device = discoveryv0.Device

// Mount is a host path that is mounted into containers that use the device.
type Mount = discoveryv0.Mount

// DeviceSpec is a device node that is created in containers that use the device.
type DeviceSpec = discoveryv0.DeviceSpec

// Request is the discovery request of one Configuration.
type Request struct {
	// Details is the Configuration's discoveryDetails. DecodeDetails decodes YAML.
	Details string
	// Properties are the Configuration's discoveryProperties with values from Secrets and
	// ConfigMaps. They may hold credentials: do not log them.
	Properties map[string][]byte
	// Log is the logger for messages about this request.
	Log *zap.Logger
}

// Send sends the complete current list, unless it equals the previous one. It blocks while the
// receiver is slow. The caller must not change the devices afterwards. An error means that the
// stream has ended.
type Send func(devices []*Device) error

// Handler discovers devices.
type Handler interface {
	// Discover sends the complete list as soon as possible, even if it is empty, and again after
	// each change, until ctx ends. Calls for different Configurations run concurrently. An error
	// ends the stream and is shown in the Configuration's status; Akri calls Discover again later.
	// After an error marked with Invalid, Akri waits until the Configuration changes.
	Discover(ctx context.Context, request Request, send Send) error
}

// Watch is a Handler that detects changes itself.
type Watch func(ctx context.Context, request Request, send Send) error

// Discover implements Handler.
func (w Watch) Discover(ctx context.Context, request Request, send Send) error {
	return w(ctx, request, send)
}

// List returns the devices that match the request now.
type List func(ctx context.Context, request Request) ([]*Device, error)

// Poll is a Handler that calls List at an interval.
type Poll struct {
	// Interval between two calls of List. Default: 10 s.
	Interval time.Duration
	// List returns the current devices. Its context ends after 30 s.
	List List
}

const (
	defaultInterval = 10 * time.Second
	listTimeout     = 30 * time.Second
)

// Discover implements Handler. It returns an error of List that occurs before the first list is
// sent. After that it logs the error and keeps the previous list, because an unreachable device is
// not a removed device.
func (p Poll) Discover(ctx context.Context, request Request, send Send) error {
	ticker := time.NewTicker(p.interval())
	defer ticker.Stop()
	for sent := false; ; {
		devices, err := p.list(ctx, request)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (!sent || isInvalid(err)):
			return err
		case err != nil:
			request.Log.Warn("listing devices failed; keeping the previous list", zap.Error(err))
		default:
			if err := send(devices); err != nil {
				return err
			}
			sent = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (p Poll) interval() time.Duration {
	if p.Interval <= 0 {
		return defaultInterval
	}
	return p.Interval
}

func (p Poll) list(ctx context.Context, request Request) ([]*Device, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return p.List(ctx, request)
}
