package network

import (
	"context"
	"net/netip"
	"slices"
	"sync"
)

// Limits of what waits to be heard.
const (
	maxWaiting      = 8192
	maxWaitingBytes = 8 << 20
)

// queue takes datagrams from the kernel, whose buffers hold the answers of some dozen cameras only.
type queue struct {
	some chan struct{} // capacity 1: there are packets

	mu           sync.Mutex
	packets      []packet
	count, bytes int // of packets, and of those taken that were not heard yet
}

type packet struct {
	datagram []byte
	from     netip.Addr
}

func newQueue() *queue { return &queue{some: make(chan struct{}, 1)} }

// put copies the datagram, or drops it when too much waits.
func (q *queue) put(datagram []byte, from netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.count == maxWaiting || q.bytes+len(datagram) > maxWaitingBytes {
		return
	}
	q.packets = append(q.packets, packet{slices.Clone(datagram), from})
	q.count++
	q.bytes += len(datagram)
	select {
	case q.some <- struct{}{}:
	default:
	}
}

// waiting tells whether there are datagrams that were not heard yet.
func (q *queue) waiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count > 0
}

func (q *queue) drain(ctx context.Context, hear func([]byte, netip.Addr)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.some:
		}
		for _, p := range q.take() {
			if ctx.Err() != nil {
				return nil
			}
			hear(p.datagram, p.from)
			q.heard(p)
		}
	}
}

func (q *queue) take() []packet {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.packets
	q.packets = nil
	return taken
}

func (q *queue) heard(p packet) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count--
	q.bytes -= len(p.datagram)
}
