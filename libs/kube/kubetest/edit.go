package kubetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// The clients of kube and the typed clients of client-go implement these.
type (
	reader[T any] interface {
		Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	}
	updater[T any] interface {
		reader[T]
		Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	}
	statusUpdater[T any] interface {
		reader[T]
		UpdateStatus(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	}
)

// Edit changes the object and writes it, without its status. It reads and changes the object again
// when another client, such as the service under test, has written it in between.
func Edit[T any](t testing.TB, client updater[T], name string, change func(T)) {
	t.Helper()
	edit(t, client, client.Update, name, change)
}

// EditStatus is Edit for the status of the object.
func EditStatus[T any](t testing.TB, client statusUpdater[T], name string, change func(T)) {
	t.Helper()
	edit(t, client, client.UpdateStatus, name, change)
}

func edit[T any](
	t testing.TB, client reader[T], update func(context.Context, T, metav1.UpdateOptions) (T, error),
	name string, change func(T),
) {
	t.Helper()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := client.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(object)
		_, err = update(t.Context(), object, metav1.UpdateOptions{})
		return err
	}))
}
