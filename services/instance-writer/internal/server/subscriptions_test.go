package server //nolint:testpackage // subscriptions are not exported

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

func TestSubscriptionMergesChangesOfItsNode(t *testing.T) {
	s := newSubscriptions()
	a, b := s.subscribe("a"), s.subscribe("b")
	defer a.close()
	for range 3 {
		s.notify(named("x"), "a", "c")
	}
	<-a.changed
	require.Empty(t, a.changed)
	require.Empty(t, b.changed)
	changed, ok := a.take()
	require.True(t, ok)
	require.Len(t, changed, 1)
	b.close()
	s.notify(named("x"), "b")
	require.Empty(t, b.changed)
}

func TestSubscriptionOverflow(t *testing.T) {
	s := newSubscriptions()
	a := s.subscribe("a")
	defer a.close()
	for i := range maxPending + 1 {
		s.notify(named(strconv.Itoa(i)), "a")
	}
	changed, ok := a.take()
	require.False(t, ok)
	require.Len(t, changed, maxPending)
}
