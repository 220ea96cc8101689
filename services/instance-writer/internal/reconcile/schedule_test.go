package reconcile //nolint:testpackage // the schedule is not exported

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSchedule(t *testing.T) {
	const expensive = time.Minute
	failed := errors.New("timeout")
	for name, c := range map[string]struct {
		first run // what the first run does
		err   error
		isNew bool // the first run has new input
		input bool // there is new input after it

		postponed  bool // the second run is too early,
		wantNew    bool // or has new input,
		wantWaits  bool // or must not write yet
		wantsAgain time.Duration
	}{
		"new input is written at once":            {first: run{written: true}, isNew: true, input: true, wantNew: true},
		"also after a correction":                 {first: run{written: true}, input: true, wantNew: true},
		"a correction after new input":            {first: run{written: true}, isNew: true},
		"a correction after another one waits":    {first: run{written: true}, wantWaits: true},
		"no correction was necessary":             {first: run{}},
		"the input of a failed run stays new":     {first: run{}, err: failed, isNew: true, wantNew: true},
		"the input of a refused run stays new":    {first: run{refused: true, requeueAfter: time.Second}, isNew: true, wantNew: true, wantsAgain: time.Second},
		"a failed run without input":              {first: run{requeueAfter: time.Second}, err: failed},
		"a correction of a failed run counts":     {first: run{written: true}, err: failed, wantWaits: true},
		"an expensive object is postponed":        {first: run{interval: expensive}, postponed: true},
		"also with new input":                     {first: run{interval: expensive}, input: true, postponed: true},
		"a run without new input can be repeated": {first: run{requeueAfter: time.Second}, wantsAgain: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSchedule[string]()
				if c.isNew {
					s.markNew("a")
				}
				first, err := s.begin("a")
				require.NoError(t, err)
				require.Equal(t, run{isNew: c.isNew}, first)
				c.first.isNew = c.isNew
				again, err := s.end("a", c.first, c.err)
				require.Equal(t, c.wantsAgain, again)
				require.ErrorIs(t, err, c.err)
				if c.input {
					s.markNew("a")
				}

				second, err := s.begin("a")
				if c.postponed {
					require.Equal(t, postponedError{expensive}, err)
					<-time.After(expensive)
					second, err = s.begin("a")
					require.Equal(t, c.input, second.isNew)
				} else {
					require.Equal(t, c.wantNew, second.isNew)
				}
				require.NoError(t, err)
				require.Equal(t, c.wantWaits, second.wait >= correctionInterval, second.wait)
			})
		})
	}
}

// A schedule forgets objects whose times have passed.
func TestScheduleForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule[int]()
		for i := range 100 {
			_, err := s.begin(i)
			require.NoError(t, err)
			_, err = s.end(i, run{written: true, interval: time.Second}, nil)
			require.NoError(t, err)
			<-time.After(correctionInterval / 2)
		}
		require.LessOrEqual(t, len(s.next), 3)
		require.Empty(t, s.newInput)
	})
}
