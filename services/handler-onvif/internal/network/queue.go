package network

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
)

// Limits of what waits to be heard.
const (
	maxWaiting      = 8192
	maxWaitingBytes = 8 << 20
)

// queue takes datagrams from the kernel, whose buffers hold the answers of some dozen cameras only.
type queue struct {
	packets chan packet
	bytes   atomic.Int64
}

type packet struct {
	datagram []byte
	from     netip.Addr
}

func newQueue() *queue { return &queue{packets: make(chan packet, maxWaiting)} }

// put copies the datagram, or drops it when too much waits.
func (q *queue) put(datagram []byte, from netip.Addr) {
	size := int64(len(datagram))
	if q.bytes.Add(size) > maxWaitingBytes {
		q.bytes.Add(-size)
		return
	}
	select {
	case q.packets <- packet{slices.Clone(datagram), from}:
	default:
		q.bytes.Add(-size)
	}
}

func (q *queue) drain(ctx context.Context, hear func([]byte, netip.Addr)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-q.packets:
			hear(p.datagram, p.from)
			q.bytes.Add(-int64(len(p.datagram)))
		}
	}
}
