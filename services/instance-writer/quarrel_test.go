package instancewriter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReplicasThatHearANodeTwiceDoNotWriteAgainstEachOther(t *testing.T) {
	w := newWorld(t, 1, 1)
	stale, fresh := start(t, grace), start(t, grace)
	node, name := w.nodes[0], w.shared("foo")
	open(t, stale).tell(w.report(node, w.device(node, "foo", true))) // and its end is not heard of
	s := open(t, fresh)
	s.tell(w.report(node, w.device(node, "foo", true)))
	s.tell(w.report(node))
	sink := time.NewTimer(3 * time.Second) // what is tested is that little happens
	<-sink.C
	require.LessOrEqual(t, stale.writes(t)+fresh.writes(t), 20.0, "status and conflicts included")
	require.True(t, w.gone(name), "the newer stream has the last word")
}
