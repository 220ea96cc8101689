package kube

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// Work calls process for each key of a queue, several keys at once, until ctx ends. It then shuts
// the queue down and returns when the calls have returned.
func Work[K comparable](
	ctx context.Context, queue workqueue.TypedInterface[K], workers int, process func(ctx context.Context, key K),
) {
	defer queue.ShutDown() // also if all workers see the end of ctx first
	defer context.AfterFunc(ctx, queue.ShutDown)()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for ctx.Err() == nil {
				key, shutdown := queue.Get()
				if shutdown {
					return
				}
				process(ctx, key)
				queue.Done(key)
			}
		})
	}
	group.Wait()
}
