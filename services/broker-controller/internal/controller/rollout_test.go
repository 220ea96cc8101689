package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/render"
)

// A rollout waits for a pending Pod for the same time, whatever the clock of the API server is.
func TestRolloutIgnoresCreationTimes(t *testing.T) {
	const stuckAfter = 5 * time.Minute
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, offset := range map[string]time.Duration{"clock behind": -time.Hour, "same clock": 0, "clock ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			clients, err := cluster.NewClients(&rest.Config{Host: "unused"})
			require.NoError(t, err)
			cache := cluster.NewCache(clients)
			configuration := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "echo", UID: "c"}}
			instance := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "echo-8120fe"}}
			require.NoError(t, cache.Pods.GetIndexer().Add(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: "echo-d2981e-pod", UID: "p", CreationTimestamp: metav1.NewTime(now.Add(offset)),
					Labels: map[string]string{render.LabelConfiguration: "echo"},
				},
				Status: corev1.PodStatus{Phase: corev1.PodPending},
			}))
			rollout := newRollout()
			mayStart := func(after time.Duration) bool {
				return rollout.tryStart(cache, instance, configuration, now.Add(after), stuckAfter)
			}
			require.False(t, mayStart(0))
			require.False(t, mayStart(stuckAfter-time.Second))
			require.True(t, mayStart(stuckAfter))
		})
	}
}
