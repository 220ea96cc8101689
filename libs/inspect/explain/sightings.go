package explain

import "time"

// Sightings are when links were first seen to wait. The zero value is ready to use. A process keeps
// them from one Snapshot to the next, and calls Next before each.
type Sightings struct{ last, current map[sighting]time.Time }

// sighting identifies a wait. A link that waits for something else has another message or since.
type sighting struct {
	link, message string
	since         time.Time
}

// Next forgets the waits that the verdicts since the previous call did not have.
func (s *Sightings) Next() { s.last, s.current = s.current, map[sighting]time.Time{} }

func (s *Sightings) of(what sighting, now time.Time) time.Time {
	since, seen := s.last[what]
	if !seen {
		since = now
	}
	if known, again := s.current[what]; again {
		return known
	}
	s.current[what] = since
	return since
}
