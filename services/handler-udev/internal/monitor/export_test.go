package monitor

import "golang.org/x/sys/unix"

// SetReceiveBuffer makes the buffer small enough for a test to fill.
func (s *Socket) SetReceiveBuffer(size int) error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, size) })
	if err != nil {
		return err
	}
	return set
}

// Handle passes an event to the Handler.
func (m *Monitor) Handle(event Event) { m.handle(event) }
