package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The time of a transition is of another clock: it may be long ago or in the future.
func TestGraceIgnoresOtherClocks(t *testing.T) {
	for name, skew := range map[string]time.Duration{"equal": 0, "behind": -time.Hour, "ahead": time.Hour, "unset": -time.Since(time.Time{})} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := notReadyNodes{byName: map[string]notReadySince{}}
				node := func(status corev1.ConditionStatus, transition time.Time) *corev1.Node {
					return &corev1.Node{
						ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID("1")},
						Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
							{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(transition)},
						}},
					}
				}
				first, lost := time.Now(), node(corev1.ConditionUnknown, time.Now().Add(skew))
				for range 3 {
					since, notReady := nodes.observe(lost)
					require.True(t, notReady)
					require.Equal(t, first, since, "the grace period begins with the first observation")
					<-time.After(time.Minute)
				}
				again := node(corev1.ConditionUnknown, time.Now().Add(skew))
				since, _ := nodes.observe(again)
				require.Equal(t, time.Now(), since, "the node was ready in between")
				_, notReady := nodes.observe(node(corev1.ConditionTrue, time.Now()))
				require.False(t, notReady)
				require.Empty(t, nodes.byName)

				nodes.observe(again)
				<-time.After(time.Minute)
				again.UID = "2"
				since, _ = nodes.observe(again)
				require.Equal(t, time.Now(), since, "another node has the name")
				nodes.forget("a")
				require.Empty(t, nodes.byName)
			})
		})
	}
}
