package explain_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
)

// A verdict states what is waited for. If it states until when, it is another one after that time,
// in any cluster of testdata and in all phases, also while the objects are five seconds old. Only
// what can take any time, such as a free slot, has no such time.
func TestWaitingEnds(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	ended, endless := map[string]int{}, map[string]int{}
	for _, file := range files {
		s := load(t, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		for _, phase := range phases {
			phase.change(s)
			for _, now := range []time.Time{fixture.Now, fixture.Now.Add(5*time.Second - time.Hour)} {
				what := file + ", " + phase.name + ", " + now.String()
				later := map[time.Time]map[akriv0.Subject]explain.Verdict{}
				for subject, v := range verdictsAt(s, now) {
					if v.State != explain.Waiting {
						continue
					}
					require.NotNil(t, v.Wait, "%s: %v", what, subject)
					require.NotEmpty(t, v.Wait.Awaited, "%s: %v", what, subject)
					until := v.Wait.Until.Time
					if until.IsZero() {
						endless[v.Wait.Awaited]++
						continue
					}
					require.False(t, until.Before(now), "%s: %v waits until %s", what, subject, until)
					if later[until] == nil {
						later[until] = verdictsAt(s, until.Add(time.Second))
					}
					require.NotEqual(t, explain.Waiting, later[until][subject].State, "%s: %v: %s", what, subject, later[until][subject].Summary())
					ended[v.Wait.Awaited]++
				}
			}
		}
	}
	t.Logf("ended: %v, endless: %v", ended, endless)
	require.Greater(t, len(ended), 5)
	require.NotEmpty(t, endless["a free slot"])
	require.Len(t, endless, 1, "what can take any time")
}

func verdictsAt(s *explain.Snapshot, now time.Time) map[akriv0.Subject]explain.Verdict {
	at := *s // with an index of its own
	at.Now = now
	return allVerdicts(&at)
}
