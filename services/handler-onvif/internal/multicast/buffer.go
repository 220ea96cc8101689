package multicast

import (
	"context"
	"slices"
	"sync"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/handler/address"
)

// Limits of a queue.
const (
	maxQueued      = 8192
	maxQueuedBytes = 8 << 20
)

// queue holds received datagrams until they are handled. Socket buffers alone hold the answers of a
// few dozen cameras.
type queue struct {
	added broadcast.Signal

	mu           sync.Mutex
	packets      []packet
	count, bytes int // of datagrams that are queued or being handled
}

type packet struct {
	datagram []byte
	from     address.Origin
}

func newQueue() *queue { return &queue{added: broadcast.NewSignal()} }

// put adds a copy of the datagram. It drops the datagram if the queue is full.
func (q *queue) put(datagram []byte, from address.Origin) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.count == maxQueued || q.bytes+len(datagram) > maxQueuedBytes {
		return
	}
	q.packets = append(q.packets, packet{slices.Clone(datagram), from})
	q.count++
	q.bytes += len(datagram)
	q.added.Notify()
}

// pending reports whether datagrams are queued or being handled.
func (q *queue) pending() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count > 0
}

// run calls handle for each datagram in order, until ctx ends.
func (q *queue) run(ctx context.Context, handle func([]byte, address.Origin)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.added:
		}
		for _, p := range q.take() {
			if ctx.Err() != nil {
				return nil
			}
			handle(p.datagram, p.from)
			q.done(p)
		}
	}
}

func (q *queue) take() []packet {
	q.mu.Lock()
	defer q.mu.Unlock()
	packets := q.packets
	q.packets = nil
	return packets
}

func (q *queue) done(p packet) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count--
	q.bytes -= len(p.datagram)
}
