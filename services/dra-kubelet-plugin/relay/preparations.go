package relay

import (
	"context"
	"errors"
	"sync"

	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
)

// preparations are those in progress. When a claim is unprepared, its preparations end first: one
// that is sent again later would prepare a claim that the kubelet has forgotten, and nothing would
// release its slot. The kubelet unprepares the claims of deleted Pods once a minute, without
// waiting for calls in progress.
type preparations struct {
	mu      *sync.Mutex
	running map[*preparation]bool
}

type preparation struct {
	claims map[string]bool
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

func newPreparations() preparations {
	return preparations{mu: &sync.Mutex{}, running: map[*preparation]bool{}}
}

// run calls prepare with a context that ends when one of the claims is unprepared. Its error is
// then errUnprepared.
func (p *preparations) run(ctx context.Context, claims map[string]bool, prepare func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	own := &preparation{claims: claims, cancel: cancel, ended: make(chan struct{})}
	p.mu.Lock()
	p.running[own] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.running, own)
		close(own.ended)
	}()
	if err := prepare(ctx); err == nil || !errors.Is(context.Cause(ctx), errUnprepared) {
		return err
	}
	return errUnprepared
}

// end ends the preparations of the claims and waits until they have returned.
func (p *preparations) end(claims map[string]bool) {
	for _, preparation := range p.of(claims) {
		preparation.cancel(errUnprepared)
		<-preparation.ended
	}
}

func (p *preparations) of(claims map[string]bool) (found []*preparation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for preparation := range p.running {
		for claim := range claims {
			if preparation.claims[claim] {
				found = append(found, preparation)
				break
			}
		}
	}
	return found
}

// claims returns the uids of the claims of a request. Requests to prepare and to unprepare have the
// same form.
func (c *call) claims() map[string]bool {
	var request drav1.NodePrepareResourcesRequest
	c.request.decode(&request)
	uids := map[string]bool{}
	for _, claim := range request.GetClaims() {
		uids[claim.GetUid()] = true
	}
	return uids
}
