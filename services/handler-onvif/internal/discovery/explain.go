package discovery

import (
	"context"
	"time"

	details "akri.sh/libs/details/onvif"
	"akri.sh/libs/handler"
	"akri.sh/libs/onvif"
	"akri.sh/services/handler-onvif/internal/cameras"
)

// Explain implements handler.Explainer. It compares the cameras that answer with the filters. IP
// and MAC addresses are those that cameras have reported to a Discover stream, which has the
// credentials.
func (p *Prober) Explain(ctx context.Context, request handler.Request) ([]*handler.NearMiss, error) {
	parsed, err := details.Parse(request.Details)
	if err != nil {
		return nil, handler.Invalid(err)
	}

	var misses []*handler.NearMiss
	for _, camera := range p.await(ctx, parsed.Timeout()) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c := known{camera, p.addressesOf(camera.UUID)}
		if !c.matches(parsed) {
			misses = append(misses, handler.MissOf(c.URL, request.Details, c.filters(parsed), func(text string) bool {
				corrected, err := details.Parse(text)
				return err == nil && c.matches(corrected)
			}))
		}
	}
	return handler.Join(misses), ctx.Err()
}

// await returns the cameras when they are complete, and those that are known after half of the time
// of ctx.
func (p *Prober) await(ctx context.Context, timeout time.Duration) []cameras.Camera {
	ctx, cancel := handler.HalfTime(ctx)
	defer cancel()
	changed, unsubscribe := p.subscribe()
	defer unsubscribe()
	timer := time.NewTicker(firstListInterval)
	defer timer.Stop()
	for {
		found, complete := p.cameras(timeout)
		if complete {
			return found
		}
		select {
		case <-ctx.Done():
			return found
		case <-changed:
		case <-timer.C:
		}
	}
}

// known is what is known of a camera. Addresses are empty if they are not known.
type known struct {
	cameras.Camera
	onvif.Addresses
}

func (c known) matches(d details.Details) bool {
	return d.MatchesEndpoint(c.UUID, c.Scopes) && d.MatchesAddresses(c.IP, c.MAC)
}

// filters compares the camera with the filters that the details have.
func (c known) filters(d details.Details) []handler.Filter {
	var filters []handler.Filter
	add := func(name string, filter *details.Filter, alone details.Details, values ...string) {
		if filter == nil {
			return
		}
		filters = append(filters, handler.Filter{
			Name: name, Items: filter.Items, Exclude: filter.Excludes(), Values: withoutEmpty(values), Matches: c.matches(alone),
		})
	}
	add("ipAddresses", d.IPAddresses, details.Details{IPAddresses: d.IPAddresses}, c.IP)
	add("macAddresses", d.MACAddresses, details.Details{MACAddresses: d.MACAddresses}, c.MAC)
	add("scopes", d.Scopes, details.Details{Scopes: d.Scopes}, c.Scopes...)
	add("uuids", d.UUIDs, details.Details{UUIDs: d.UUIDs}, c.UUID)
	return filters
}

func withoutEmpty(values []string) []string {
	var list []string
	for _, value := range values {
		if value != "" {
			list = append(list, value)
		}
	}
	return list
}
