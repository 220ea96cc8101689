package explain

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Sightings are when links were first seen to wait. The zero value is ready to use. A process keeps
// them from one Snapshot to the next, and calls Next before each.
type Sightings struct{ last, current map[sighting]metav1.Time }

// sighting identifies a wait. A link that waits for something else has another message or since.
type sighting struct {
	link, message string
	since         time.Time
}

// Next forgets the waits that the verdicts since the previous call did not have.
func (s *Sightings) Next() { s.last, s.current = s.current, map[sighting]metav1.Time{} }

func (s *Sightings) of(what sighting, now time.Time) metav1.Time {
	since, seen := s.last[what]
	if !seen {
		since = metav1.NewTime(now)
	}
	if known, again := s.current[what]; again {
		return known
	}
	s.current[what] = since
	return since
}
