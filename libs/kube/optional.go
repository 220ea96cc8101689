package kube

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

const (
	servedInterval = 10 * time.Second
	servedTimeout  = 3 * time.Second
)

// Optional are informers of an API that the API server may not have. They run from when it has the
// API.
type Optional struct {
	Informers
	Server  rest.Interface
	Version schema.GroupVersion

	// served is whether the API server has the API, if that is known.
	served, known atomic.Bool
}

// Run keeps the caches up to date until ctx ends.
func (o *Optional) Run(ctx context.Context) {
	if len(o.Informers) == 0 {
		return
	}
	err := wait.PollUntilContextCancel(ctx, servedInterval, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, servedTimeout)
		defer cancel()
		err := o.Server.Get().AbsPath("/apis/" + o.Version.String()).Do(ctx).Error()
		o.served.Store(err == nil)
		o.known.Store(err == nil || apierrors.IsNotFound(err))
		return err == nil, nil
	})
	if err == nil {
		o.Informers.Run(ctx)
	}
}

// HasSynced reports whether the first list of every kind has arrived, or the API server is known
// not to have the API.
func (o *Optional) HasSynced() bool {
	return len(o.Informers) == 0 || o.known.Load() && (!o.served.Load() || o.Informers.HasSynced())
}
