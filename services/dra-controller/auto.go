package dracontroller

import (
	"cmp"
	"context"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/resources"
	"akri.sh/services/dra-controller/internal/controller"
	"akri.sh/services/dra-controller/internal/decision"
)

// resourcesAuto is the value of --resources with which the cluster decides.
const resourcesAuto = "auto"

const (
	probeInterval = 10 * time.Second
	// decisionTimeout is less than an upgrade of the control plane can take: device plugins work
	// on all versions, and an installation must not wait for a day.
	decisionTimeout = 10 * time.Minute
)

// auto decides how Pods get devices, and starts what publishes devices once they are published on
// any node. Until then an API server need not have Dynamic Resource Allocation.
type auto struct {
	service  *Service
	record   *resources.Record
	recorder *decision.Recorder
	// changed is set when the use of Dynamic Resource Allocation may have changed.
	changed broadcast.Value[struct{}]
}

func newAuto(s *Service) (*auto, error) {
	record, err := resources.NewRecord(s.rest, s.config.Namespace)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // only for readers of the record
	recorder, err := decision.NewRecorder(decision.Options{
		REST: s.rest, Cache: s.cache, Record: record, Identity: cmp.Or(s.config.Identity, host),
		Interval: probeInterval, Timeout: decisionTimeout, Log: s.env.Log,
	})
	if err != nil {
		return nil, err
	}
	a := &auto{service: s, record: record, recorder: recorder}
	record.OnChange(func(string) { a.changed.Set(struct{}{}) })
	s.cache.Nodes.OnEvent(func(_, _ *corev1.Node) { a.changed.Set(struct{}{}) })
	return a, nil
}

// follow keeps the cache of Dynamic Resource Allocation up to date from when it is used.
func (a *auto) follow(ctx context.Context) error {
	if a.awaitUse(ctx) == nil {
		a.service.cache.DRA.Run(ctx)
	}
	return nil
}

// lead decides, and publishes devices from when Dynamic Resource Allocation is used.
func (a *auto) lead(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { a.recorder.Run(ctx); return nil })
	group.Go(func() error {
		if a.awaitUse(ctx) != nil || kube.WaitForSync(ctx, a.service.cache.DRA) != nil {
			return nil // ctx ended
		}
		return a.service.lead(ctx)
	})
	return group.Wait()
}

// awaitUse waits until Dynamic Resource Allocation is used. It fails only if ctx ends.
func (a *auto) awaitUse(ctx context.Context) error {
	for {
		_, changed := a.changed.Get()
		if controller.InUse(a.service.cache.Nodes.List(), a.record.Resources()) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
