package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A report that is as old as those of a kubelet can be, and an old report of a node that is not
// ready, say nothing about the clock.
func TestWrongClocks(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		ahead  time.Duration
		status corev1.ConditionStatus
		want   string
	}{
		"right":                  {-10 * time.Second, corev1.ConditionTrue, ""},
		"a little ahead":         {59 * time.Second, corev1.ConditionTrue, ""},
		"last report":            {-6 * time.Minute, corev1.ConditionTrue, ""},
		"ahead":                  {time.Minute, corev1.ConditionTrue, "60s ahead of"},
		"behind":                 {-15 * time.Minute, corev1.ConditionTrue, "15m behind"},
		"six weeks behind":       {-42 * 24 * time.Hour, corev1.ConditionTrue, "42d behind"},
		"years ahead":            {3 * 365 * 24 * time.Hour, corev1.ConditionTrue, "3y ahead of"},
		"node that is not ready": {-42 * 24 * time.Hour, corev1.ConditionFalse, ""},
		"node that is lost":      {-42 * 24 * time.Hour, corev1.ConditionUnknown, ""},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: c.status, LastHeartbeatTime: metav1.NewTime(now.Add(c.ahead))},
		}}}
		cause := wrongClock(&Snapshot{Now: now}, node)
		if c.want == "" {
			require.Nil(t, cause, name)
			continue
		}
		require.NotNil(t, cause, name)
		require.Contains(t, cause.Message, "the clock of node-a is "+c.want+" that of the API server", name)
		require.Nil(t, wrongClock(&Snapshot{}, node), "%s: the time of the API server is not known", name)
	}

	neverReported := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	require.Nil(t, wrongClock(&Snapshot{Now: now}, neverReported))
	require.Nil(t, wrongClock(&Snapshot{Now: now}, nil))
}
