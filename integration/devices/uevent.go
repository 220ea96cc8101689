package devices

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// kernelGroup is the netlink group in which the kernel itself sends uevents.
const kernelGroup = 1

// UeventSocket receives the kernel's uevents and notes when. Netlink has no time stamps of its own: a message that waited in the
// socket would tell when it was read.
type UeventSocket struct {
	fd      int
	closing chan struct{}
	done    chan struct{}
	news    chan struct{} // capacity 1

	mu   sync.Mutex
	came map[string]time.Time // by `action@devpath`
}

// Uevents receives what the kernel sends from now on, until Close.
func Uevents() (*UeventSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open uevent socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind uevent socket: %w", err), unix.Close(fd))
	}
	timeout := unix.NsecToTimeval(int64(100 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, errors.Join(fmt.Errorf("set receive timeout: %w", err), unix.Close(fd))
	}
	s := &UeventSocket{
		fd: fd, closing: make(chan struct{}), done: make(chan struct{}), news: make(chan struct{}, 1), came: map[string]time.Time{},
	}
	go s.receive()
	return s, nil
}

// Close ends it.
func (s *UeventSocket) Close() {
	close(s.closing)
	<-s.done
	_ = unix.Close(s.fd)
}

func (s *UeventSocket) receive() {
	defer close(s.done)
	message := make([]byte, 16<<10)
	for {
		n, _, err := unix.Recvfrom(s.fd, message, 0)
		now := time.Now()
		select {
		case <-s.closing:
			return
		default:
		}
		if err != nil {
			continue // nothing came for a while, or too much: the event that is awaited comes or the wait ends
		}
		what, _, _ := bytes.Cut(message[:n], []byte{0})
		s.mu.Lock()
		s.came[string(what)] = now
		s.mu.Unlock()
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
}

// Await returns when the kernel last sent the action for the device, waiting for it if need be; it counts once.
func (s *UeventSocket) Await(ctx context.Context, action, devPath string) (time.Time, error) {
	for {
		if at, came := s.take(action + "@" + devPath); came {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for uevent %s of %s: %w", action, devPath, ctx.Err())
		case <-s.news:
		}
	}
}

func (s *UeventSocket) take(what string) (at time.Time, came bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, came = s.came[what]
	delete(s.came, what)
	return at, came
}
