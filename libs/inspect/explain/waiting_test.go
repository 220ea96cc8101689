package explain_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
)

// A verdict or a link states what is waited for and since when. If it states until when, it does
// not work after that time, in any cluster of testdata and in all phases, also while the objects
// are five seconds old. Only what can take any time, such as a free slot, has no such time.
func TestWaitingEnds(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	ended, endless := map[string]int{}, map[string]int{}
	for _, file := range files {
		s := load(t, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		for _, phase := range phases {
			phase.change(s)
			for _, now := range []time.Time{fixture.Now, fixture.Now.Add(5*time.Second - time.Hour)} {
				requireWaitsEnd(t, file+", "+phase.name+", "+now.String(), s, now, ended, endless)
			}
		}
	}

	t.Logf("ended: %v, endless: %v", ended, endless)
	require.Greater(t, len(ended), 5)
	require.NotEmpty(t, endless["a free slot"])
	require.Len(t, endless, 1, "what can take any time")
}

// requireWaitsEnd counts what is waited for, with and without an end.
func requireWaitsEnd(t *testing.T, what string, s *explain.Snapshot, now time.Time, ended, endless map[string]int) {
	t.Helper()
	later := map[time.Time]map[string]explain.Link{}
	for name, link := range linksAt(t, s, now) {
		if link.State != explain.Waiting {
			continue
		}
		require.NotNil(t, link.Wait, "%s: %s", what, name)
		require.NotEmpty(t, link.Wait.Awaited, "%s: %s", what, name)
		require.NotZero(t, link.Wait.Since, "%s: %s", what, name)

		until := link.Wait.Until.Time
		if until.IsZero() {
			endless[link.Wait.Awaited]++
			continue
		}
		require.False(t, until.Before(now), "%s: %s waits until %s", what, name, until)
		if later[until] == nil {
			later[until] = linksAt(t, s, until.Add(time.Second))
		}
		after := later[until][name]
		require.Contains(t, []explain.State{explain.Broken, explain.Partly}, after.State, "%s: %s: %s", what, name, after.Message)
		ended[link.Wait.Awaited]++
	}
}

// linksAt returns what all verdicts state, which is consistent, and the links of all objects. An
// object has each link once.
func linksAt(t *testing.T, s *explain.Snapshot, now time.Time) map[string]explain.Link {
	t.Helper()
	at := *s // with an index of its own
	at.Now = now
	links := map[string]explain.Link{}
	for subject, v := range allVerdicts(&at) {
		requireConsistent(t, v)
		links[fmt.Sprintf("verdict on %v", subject)] = linkOf(v)
	}
	for _, e := range explanations(&at) {
		for _, link := range e.Links {
			name := fmt.Sprintf("%s %s/%s: %s", e.Kind, e.Namespace, e.Name, link.Name)
			require.Empty(t, links[name].Name, name)
			links[name] = link
		}
	}
	return links
}
