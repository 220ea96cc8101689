package handler

import (
	"context"
	"time"

	"go.uber.org/zap"

	discoveryv0 "akri.sh/proto/v0"
)

// Device is one discovered device; its Id must never change for the same device.
type Device = discoveryv0.Device

// Mount is a host path that the containers which use a device get.
type Mount = discoveryv0.Mount

// DeviceSpec is a device node that the containers which use a device get.
type DeviceSpec = discoveryv0.DeviceSpec

// Request is what one Configuration asks for.
type Request struct {
	// Details is the text of the Configuration's discoveryDetails; DecodeDetails reads YAML.
	Details string
	// Properties are the Configuration's discoveryProperties, resolved: they may hold credentials, keep them out of logs.
	Properties map[string][]byte
	// Log is for what a person should know about this request.
	Log *zap.Logger
}

// Send gives Akri the complete current list; a list equal to the one before is not sent again. It blocks while Akri is
// slow to read, and the devices must not be changed afterwards. An error means that nobody listens any more.
type Send func(devices []*Device) error

// Handler finds devices.
type Handler interface {
	// Discover sends the complete list as soon as it is known, also when it is empty, and again after each change,
	// until ctx ends. Several calls run at once, one per Configuration. An error ends the stream and is shown to the
	// user; Akri asks again later. One made by Invalid says that asking again is useless until the request changes.
	Discover(ctx context.Context, request Request, send Send) error
}

// Watch is a Handler that learns about changes by itself.
type Watch func(ctx context.Context, request Request, send Send) error

// Discover implements Handler.
func (w Watch) Discover(ctx context.Context, request Request, send Send) error {
	return w(ctx, request, send)
}

// List returns the devices that match a request now.
type List func(ctx context.Context, request Request) ([]*Device, error)

// Poll is a Handler that asks again and again.
type Poll struct {
	// Interval is the pause between two questions; 10 s when not set.
	Interval time.Duration
	// List answers. Each call has 30 s.
	List List
}

const (
	defaultInterval = 10 * time.Second
	listTimeout     = 30 * time.Second
)

// Discover implements Handler. A failure before the first list is the user's to see; one after it keeps the last list,
// because a device that cannot be asked is not gone.
func (p Poll) Discover(ctx context.Context, request Request, send Send) error {
	ticker := time.NewTicker(p.interval())
	defer ticker.Stop()
	for known := false; ; {
		devices, err := p.list(ctx, request)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (!known || isInvalid(err)):
			return err
		case err != nil:
			request.Log.Warn("list devices; the last list stays", zap.Error(err))
		default:
			if err := send(devices); err != nil {
				return err
			}
			known = true
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
