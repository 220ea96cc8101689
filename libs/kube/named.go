package kube

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"akri.sh/libs/broadcast"
)

// Named is one object that the Helm chart creates and that the replicas of a service update. It
// needs only rights on that object.
type Named[T Object] struct {
	*Informer[T]

	kind   string
	name   cache.ObjectName
	update func(context.Context, T, metav1.UpdateOptions) (T, error)
}

// NewNamed returns the object of a kind and name. The namespace is empty for cluster-scoped
// resources. changed is set when the object changes.
func NewNamed[T Object, L runtime.Object](
	client *Client[T, L], kind string, name cache.ObjectName, changed broadcast.Signal,
) *Named[T] {
	n := &Named[T]{
		Informer: NewNamedInformer(client, name.Namespace, name.Name),
		kind:     kind, name: name, update: client.In(name.Namespace).Update,
	}
	n.OnChange(func(string) { changed.Notify() })
	return n
}

// Current returns the object from the cache. Callers must not change it.
func (n *Named[T]) Current() (T, error) {
	object, exists := n.Get(n.name.String())
	if !exists {
		return object, fmt.Errorf("%s %q does not exist; install it with the Helm chart", n.kind, n.name.Name)
	}
	return object, nil
}

// Existence returns a metric that is 1 while the object exists, and 0 after it was deleted or
// before it is known.
func (n *Named[T]) Existence() prometheus.Collector {
	options := prometheus.GaugeOpts{
		Name: "akri_object_exists", Help: "1 if an object of the chart exists that the service reads and updates, 0 if it does not.",
		ConstLabels: prometheus.Labels{"kind": n.kind, "name": n.name.Name},
	}
	return prometheus.NewGaugeFunc(options, func() float64 {
		if _, exists := n.Get(n.name.String()); exists {
			return 1
		}
		return 0
	})
}

// Update fails with a conflict if the object has changed since it was read.
func (n *Named[T]) Update(ctx context.Context, object T) error {
	if _, err := n.update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update %s: %w", n.kind, err)
	}
	return nil
}
