package multicast

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler/address"
)

// drain handles all buffered datagrams and returns their number.
func drain(t *testing.T, b *receiveBuffer) (handled int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	buffered := b.count
	require.NoError(t, b.run(ctx, func([]byte, address.Origin) {
		require.True(t, b.pending(), "a datagram is pending while it is handled")
		if handled++; handled == buffered {
			cancel()
		}
	}))
	return handled
}

func TestBufferIsBounded(t *testing.T) {
	for name, test := range map[string]struct{ size, want int }{
		"too many datagrams": {size: 1, want: maxBuffered},
		"too many bytes":     {size: 60_000, want: maxBufferedBytes / 60_000},
	} {
		t.Run(name, func(t *testing.T) {
			b, datagram := newReceiveBuffer(), make([]byte, test.size)
			for range 2 * maxBuffered {
				b.put(datagram, address.Origin{})
			}
			require.Equal(t, test.want, drain(t, b))
		})
	}
}

func TestBufferCopiesDatagrams(t *testing.T) {
	b, datagram := newReceiveBuffer(), []byte("a")
	b.put(datagram, address.Origin{})
	datagram[0] = 'b'
	require.Equal(t, "a", string(b.take()[0].datagram))
}

func TestBufferIsEmptyAfterHandling(t *testing.T) {
	b := newReceiveBuffer()
	for range 10 {
		b.put([]byte("x"), address.Origin{})
	}
	require.Equal(t, 10, drain(t, b))
	require.False(t, b.pending())
	require.Zero(t, b.bytes)
}
