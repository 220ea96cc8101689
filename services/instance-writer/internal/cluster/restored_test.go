package cluster

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// history is an API server with one Instance, and a Cluster that watches it.
type history struct {
	cluster *Cluster
	// states has the Instance at each revision from 1 on, or nil if it does not exist.
	states []*akriv0.Instance
	// first is the revision of the first state that the watch can still deliver one by one.
	first int
	// delivered is the revision that the watch has reached.
	delivered int
	// own is the revision of the last write of the Cluster, or 0.
	own int
}

func (h *history) last() *akriv0.Instance { return h.states[len(h.states)-1] }

// write creates, updates or deletes the Instance.
func (h *history) write(deletes, own bool) {
	before := h.last()
	if deletes && before == nil {
		return
	}
	revision := len(h.states)
	var after *akriv0.Instance
	if !deletes {
		after = newInstance(strconv.Itoa(revision))
	}
	h.states = append(h.states, after)
	if !own {
		return
	}
	h.own = revision
	if deletes {
		h.cluster.addWritten(ownWrite{before, true})
	} else {
		h.cluster.addWritten(ownWrite{Instance: after})
	}
}

// deliver delivers the next change, or lists the Instances if the changes are not available.
func (h *history) deliver(list bool) {
	store, current := h.cluster.Instances.GetStore(), h.cluster.Watched(Key(newInstance("")))
	if list || h.delivered < h.first {
		h.delivered = len(h.states) - 1
		objects := []any{}
		if h.last() != nil {
			objects = append(objects, h.last())
		}
		_ = store.Replace(objects, strconv.Itoa(h.delivered))
	} else if h.delivered+1 < len(h.states) {
		h.delivered++
		if after := h.states[h.delivered]; after != nil {
			_ = store.Update(after)
		} else {
			_ = store.Delete(newInstance(strconv.Itoa(h.delivered)))
		}
	}
	if next := h.cluster.Watched(Key(newInstance(""))); current != next {
		h.cluster.watched(current, next)
	}
}

// restore restores the state of an earlier revision. The revision increases, as with etcdutl's
// --bump-revision, and the watch must list the Instances again.
func (h *history) restore(revision int) {
	restored := h.states[revision]
	h.states = append(slices.Clip(h.states), make([]*akriv0.Instance, 100)...)
	h.states[len(h.states)-1] = restored
	h.first, h.own = len(h.states)-1, 0
}

// TestCachedFollowsTheHistory makes random changes of an Instance, deliveries of the watch and
// restores of etcd. The Cluster has the later of what it has written and what the watch has
// delivered.
func TestCachedFollowsTheHistory(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := &history{cluster: newUnwatched(t, newInstance("1")), states: []*akriv0.Instance{nil}}
		h.deliver(true)
		r.Repeat(map[string]func(*rapid.T){
			"": func(r *rapid.T) {
				revision := max(h.delivered, h.own)
				if h.delivered < h.first {
					return // the watch has not listed the restored state
				}
				require.Equal(r, h.states[revision], h.cluster.Cached(Key(newInstance(""))), "revision %d", revision)
			},
			"write":        func(r *rapid.T) { h.write(rapid.Bool().Draw(r, "deletes"), true) },
			"writeOfOther": func(r *rapid.T) { h.write(rapid.Bool().Draw(r, "deletes"), false) },
			"deliver":      func(r *rapid.T) { h.deliver(rapid.Bool().Draw(r, "list")) },
			"restore": func(r *rapid.T) {
				revision := rapid.IntRange(0, len(h.states)-1).Draw(r, "revision")
				written, exists := h.cluster.lastWrite(Key(newInstance("")))
				if exists && written.deleted && h.states[revision] == written.Instance {
					return // it looks as if the watch had not delivered the deletion yet, until the next write
				}
				h.restore(revision)
			},
		})
	})
}
