package discovery

import (
	"context"
	"time"

	"go.uber.org/zap"

	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

// burstDelays are the delays before the rounds of the initial burst, because datagrams get lost.
var burstDelays = []time.Duration{0, 200 * time.Millisecond, 300 * time.Millisecond}

// probeLoop sends a burst of probes for the first subscriber. Then it sends one probe per
// interval, for each type in turn.
func (p *Prober) probeLoop(ctx context.Context, conn Conn) error {
	ticker := time.NewTicker(p.Interval)
	defer ticker.Stop()
	for round := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-p.subscribed:
			if p.startBurst() {
				p.burst(ctx, conn)
				ticker.Reset(p.Interval)
			}
		case <-ticker.C:
			if p.publish() { // scopes and owners of addresses change without a check
				p.probe(conn, wsdiscovery.Types[round%len(wsdiscovery.Types)])
				round++
			}
		}
	}
}

// startBurst reports whether a burst is needed.
func (p *Prober) startBurst() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.burstEnd.IsZero() {
		return false
	}
	p.burstStart = time.Now()
	return true
}

func (p *Prober) burst(ctx context.Context, conn Conn) {
	for _, delay := range burstDelays {
		if !sleep(ctx, delay) {
			return
		}
		for _, deviceType := range wsdiscovery.Types {
			p.probe(conn, deviceType)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.burstEnd = time.Now()
	p.publishLocked()
}

func (p *Prober) probe(conn Conn, deviceType wsdiscovery.Type) {
	sent, err := conn.Send(wsdiscovery.Probe(deviceType))
	if err != nil || sent == 0 {
		p.Log.Warn("sending probe failed on all interfaces", zap.Error(err))
		return
	}
	p.Metrics.Probes.Inc()
}
