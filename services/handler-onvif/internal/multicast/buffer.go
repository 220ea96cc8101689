package multicast

import (
	"context"
	"slices"
	"sync"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/handler/address"
)

// Limits of a receiveBuffer.
const (
	maxBuffered      = 8192
	maxBufferedBytes = 8 << 20
)

// receiveBuffer holds received datagrams until they are handled. Socket buffers alone hold the
// answers of a few dozen cameras.
type receiveBuffer struct {
	added broadcast.Signal

	mu           sync.Mutex
	packets      []packet
	count, bytes int // of datagrams that are buffered or being handled
}

type packet struct {
	datagram []byte
	from     address.Origin
}

func newReceiveBuffer() *receiveBuffer { return &receiveBuffer{added: broadcast.NewSignal()} }

// put adds a copy of the datagram. It drops the datagram if the buffer is full.
func (b *receiveBuffer) put(datagram []byte, from address.Origin) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count == maxBuffered || b.bytes+len(datagram) > maxBufferedBytes {
		return
	}
	b.packets = append(b.packets, packet{slices.Clone(datagram), from})
	b.count++
	b.bytes += len(datagram)
	b.added.Notify()
}

// pending reports whether datagrams are buffered or being handled.
func (b *receiveBuffer) pending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count > 0
}

// run calls handle for each datagram in order, until ctx ends.
func (b *receiveBuffer) run(ctx context.Context, handle func([]byte, address.Origin)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.added:
		}
		for _, p := range b.take() {
			if ctx.Err() != nil {
				return nil
			}
			handle(p.datagram, p.from)
			b.done(p)
		}
	}
}

func (b *receiveBuffer) take() []packet {
	b.mu.Lock()
	defer b.mu.Unlock()
	packets := b.packets
	b.packets = nil
	return packets
}

func (b *receiveBuffer) done(p packet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count--
	b.bytes -= len(p.datagram)
}
