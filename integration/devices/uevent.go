package devices

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"akri.sh/libs/broadcast"
)

// kernelGroup is the netlink group of the kernel's own uevents.
const kernelGroup = 1

// UeventSocket receives the kernel's uevents and records when. It reads continuously because
// netlink messages have no time stamps.
type UeventSocket struct {
	file    *os.File
	done    chan struct{}
	changed broadcast.Signal

	mu       sync.Mutex
	received map[string]time.Time // by `action@devpath`
}

// Uevents receives the kernel's uevents until Close.
func Uevents() (*UeventSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open uevent socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind uevent socket: %w", err), unix.Close(fd))
	}
	s := &UeventSocket{
		file: os.NewFile(uintptr(fd), "uevents"), done: make(chan struct{}), changed: broadcast.NewSignal(), received: map[string]time.Time{},
	}
	go s.receive()
	return s, nil
}

// Close stops receiving.
func (s *UeventSocket) Close() {
	_ = s.file.Close()
	<-s.done
}

func (s *UeventSocket) receive() {
	defer close(s.done)
	message := make([]byte, 16<<10)
	for {
		n, err := s.file.Read(message)
		now := time.Now()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			continue // overflow; Await ends by its context if the event was lost
		}
		header, _, _ := bytes.Cut(message[:n], []byte{0})
		s.mu.Lock()
		s.received[string(header)] = now
		s.mu.Unlock()
		s.changed.Notify()
	}
}

// Await returns when the last uevent with the action for the device arrived. It waits for one if
// there is none, and returns each only once.
func (s *UeventSocket) Await(ctx context.Context, action, devPath string) (time.Time, error) {
	for {
		if at, ok := s.take(action + "@" + devPath); ok {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for uevent %s of %s: %w", action, devPath, ctx.Err())
		case <-s.changed:
		}
	}
}

func (s *UeventSocket) take(header string) (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok = s.received[header]
	delete(s.received, header)
	return at, ok
}
