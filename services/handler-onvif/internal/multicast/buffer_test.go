package multicast

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler/address"
)

// drain handles all queued datagrams and returns their number.
func drain(t *testing.T, q *queue) (handled int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	queued := q.count
	require.NoError(t, q.run(ctx, func([]byte, address.Origin) {
		require.True(t, q.pending(), "a datagram is pending while it is handled")
		if handled++; handled == queued {
			cancel()
		}
	}))
	return handled
}

func TestQueueIsBounded(t *testing.T) {
	for name, test := range map[string]struct{ size, want int }{
		"too many datagrams": {size: 1, want: maxQueued},
		"too many bytes":     {size: 60_000, want: maxQueuedBytes / 60_000},
	} {
		t.Run(name, func(t *testing.T) {
			q, datagram := newQueue(), make([]byte, test.size)
			for range 2 * maxQueued {
				q.put(datagram, address.Origin{})
			}
			require.Equal(t, test.want, drain(t, q))
		})
	}
}

func TestQueueCopiesDatagrams(t *testing.T) {
	q, buffer := newQueue(), []byte("a")
	q.put(buffer, address.Origin{})
	buffer[0] = 'b'
	require.Equal(t, "a", string(q.take()[0].datagram))
}

func TestQueueIsEmptyAfterHandling(t *testing.T) {
	q := newQueue()
	for range 10 {
		q.put([]byte("x"), address.Origin{})
	}
	require.Equal(t, 10, drain(t, q))
	require.False(t, q.pending())
	require.Zero(t, q.bytes)
}
