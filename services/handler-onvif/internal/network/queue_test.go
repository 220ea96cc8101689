package network

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// drained returns how many datagrams waited in the queue.
func drained(t *testing.T, q *queue) (count int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waited := q.count
	require.NoError(t, q.drain(ctx, func([]byte, netip.Addr) {
		require.True(t, q.waiting(), "a datagram that is being heard was not heard yet")
		if count++; count == waited {
			cancel()
		}
	}))
	return count
}

func TestQueueDropsWhatIsTooMuch(t *testing.T) {
	for name, test := range map[string]struct{ size, want int }{
		"too many datagrams": {size: 1, want: maxWaiting},
		"too many bytes":     {size: 60_000, want: maxWaitingBytes / 60_000},
	} {
		t.Run(name, func(t *testing.T) {
			q, datagram := newQueue(), make([]byte, test.size)
			for range 2 * maxWaiting {
				q.put(datagram, netip.Addr{})
			}
			require.Equal(t, test.want, drained(t, q))
		})
	}
}

func TestQueueKeepsItsOwnCopy(t *testing.T) {
	q, buffer := newQueue(), []byte("a")
	q.put(buffer, netip.Addr{})
	buffer[0] = 'b'
	require.Equal(t, "a", string(q.take()[0].datagram))
}

func TestQueueIsEmptyAfterAllWasHeard(t *testing.T) {
	q := newQueue()
	for range 10 {
		q.put([]byte("x"), netip.Addr{})
	}
	require.Equal(t, 10, drained(t, q))
	require.False(t, q.waiting())
	require.Zero(t, q.bytes)
}
