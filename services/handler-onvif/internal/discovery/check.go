package discovery

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/onvif"
	"akri.sh/services/handler-onvif/internal/cameras"
)

// idle is the delay until the next evaluation if no check is planned.
const idle = time.Hour

// checkLoop starts all due checks at once. The clients limit their concurrency.
func (p *Prober) checkLoop(ctx context.Context) error {
	var checks sync.WaitGroup
	defer checks.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.checksDue:
		case <-timer.C:
		}
		due, next := p.dueChecks()
		for _, check := range due {
			checks.Go(func() { p.complete(ctx, check, p.check(ctx, check)) })
		}
		timer.Reset(next)
		sleep(ctx, batchDelay)
	}
}

// dueChecks returns the checks to start and the delay until the next ones.
func (p *Prober) dueChecks() ([]cameras.Check, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.subscribers) == 0 {
		return nil, idle
	}
	due := p.cache.Due(time.Now())
	if next, ok := p.cache.Next(); ok {
		return due, max(time.Until(next), 0)
	}
	return due, idle
}

// check calls the URLs in order until one answers. A device that requires credentials also answers.
func (p *Prober) check(ctx context.Context, check cameras.Check) cameras.Result {
	client := p.UnverifiedClient
	if check.Verified {
		client = p.Client
	}
	for _, url := range check.URLs {
		offset, err := client.ClockOffset(p.Policy.WithOrigin(ctx, check.Sender), onvif.Target{URL: url, Zone: check.Sender.Addr.Zone()})
		if err == nil || errors.Is(err, onvif.ErrNotAuthorized) {
			return cameras.Result{URL: url, ClockOffset: offset}
		}
		p.Log.Debug("checking camera failed", zap.String("device_id", check.UUID), zap.String("endpoint", url), zap.Error(err))
	}
	return cameras.Result{}
}

func (p *Prober) complete(ctx context.Context, check cameras.Check, result cameras.Result) {
	if ctx.Err() != nil {
		return // the check was cancelled
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cache.Complete(check, result, time.Now()) {
		p.publishLocked()
	}
	p.checksDue.Notify()
}
