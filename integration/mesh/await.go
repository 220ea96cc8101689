package mesh

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"

	"akri.sh/integration/cluster"
)

const pollInterval = 25 * time.Millisecond

// Await calls check repeatedly until it returns nil. If ctx ends first, the error has check's last
// error. It is for what the API server does not store; see AwaitObjects.
func Await(ctx context.Context, what string, check func(context.Context) error) error {
	if err := cluster.Wait(ctx, pollInterval, func() error { return check(ctx) }); err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// Objects is the client of one kind of object, such as Clients.Kubernetes.CoreV1().Pods(namespace).
type Objects[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// AwaitObjects calls check with the objects that the options select, sorted by namespace and name,
// and again after each change until it returns nil. If ctx ends first, the error has check's last
// error. T is the type of the objects, L that of their list.
func AwaitObjects[T any, L runtime.Object](
	ctx context.Context, what string, objects Objects[L], options metav1.ListOptions, check func([]T) error,
) error {
	// A watch ends with the API server, for example. The objects are then listed again.
	return Await(ctx, what, func(ctx context.Context) error {
		present, version, err := list[T](ctx, objects, options)
		if err != nil {
			return err
		}
		last := check(present.sorted())
		if last == nil {
			return nil
		}

		since := options
		since.ResourceVersion = version
		events, err := objects.Watch(ctx, since)
		if err != nil {
			return fmt.Errorf("%w; watch objects: %w", last, err)
		}
		_, err = watchtools.UntilWithoutRetry(ctx, events, func(event watch.Event) (bool, error) {
			if err := present.update(event); err != nil {
				return false, err
			}
			last = check(present.sorted())
			return last == nil, nil
		})
		return cmp.Or(last, err)
	})
}

// list returns the objects and the version of the list.
func list[T any, L runtime.Object](ctx context.Context, objects Objects[L], options metav1.ListOptions) (snapshot[T], string, error) {
	list, err := objects.List(ctx, options)
	if err != nil {
		return nil, "", fmt.Errorf("list objects: %w", err)
	}
	present := snapshot[T]{}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		return present.update(watch.Event{Type: watch.Added, Object: object})
	})
	if err != nil {
		return nil, "", err
	}
	version, err := meta.NewAccessor().ResourceVersion(list)
	return present, version, err
}

// AwaitObject calls check with the named object, and again after each change until it returns nil.
// See AwaitObjects.
func AwaitObject[T any, L runtime.Object](
	ctx context.Context, what string, objects Objects[L], name string, check func(*T) error,
) error {
	named := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	return AwaitObjects(ctx, what, objects, named, func(found []T) error {
		if len(found) == 0 {
			return fmt.Errorf("%s does not exist", name)
		}
		return check(&found[0])
	})
}

// snapshot has the present objects.
type snapshot[T any] map[types.NamespacedName]T

func (s snapshot[T]) update(event watch.Event) error {
	object, ok := any(event.Object).(*T)
	if !ok {
		return apierrors.FromObject(event.Object)
	}
	accessor, err := meta.Accessor(event.Object)
	if err != nil {
		return err
	}
	name := types.NamespacedName{Namespace: accessor.GetNamespace(), Name: accessor.GetName()}
	if event.Type == watch.Deleted {
		delete(s, name)
	} else {
		s[name] = *object
	}
	return nil
}

func (s snapshot[T]) sorted() []T {
	names := slices.SortedFunc(maps.Keys(s), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	objects := make([]T, 0, len(names))
	for _, name := range names {
		objects = append(objects, s[name])
	}
	return objects
}
