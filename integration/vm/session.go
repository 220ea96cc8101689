package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pollInterval is the pause between two questions to QEMU or to the guest agent, where neither has
// an event.
const pollInterval = 50 * time.Millisecond

// session is a connection with commands and answers in JSON: QEMU's monitor (QMP) or the guest
// agent. Both have the same protocol, but only QMP has events. A library for QMP would serve one of
// the two and replace few lines.
type session struct {
	conn *net.UnixConn
	// onEvent is called for each event of QMP.
	onEvent func(event message)

	mu      sync.Mutex
	last    int
	waiting map[int]chan message
	err     error // why the session ended
}

// message is everything that QEMU and the agent send.
type message struct {
	ID     int             `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class       string `json:"class"`
		Description string `json:"desc"`
	} `json:"error"`
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// newSession returns the session and the file with the other end, for QEMU. A socket pair has no
// name, so that nothing remains in the file system.
func newSession(onEvent func(message)) (*session, *os.File, error) {
	conn, other, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	s := &session{conn: conn, onEvent: onEvent, waiting: map[int]chan message{}}
	go s.receive()
	return s, other, nil
}

func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create socket pair: %w", err)
	}
	own, other := os.NewFile(uintptr(fds[0]), "session"), os.NewFile(uintptr(fds[1]), "qemu")
	defer own.Close() // FileConn duplicates it
	conn, err := net.FileConn(own)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("create connection: %w", err), other.Close())
	}
	return conn.(*net.UnixConn), other, nil
}

// receive passes answers to their calls until the connection ends.
func (s *session) receive() {
	decoder := json.NewDecoder(s.conn)
	for {
		var m message
		err := decoder.Decode(&m)
		s.mu.Lock()
		if err != nil {
			s.err = fmt.Errorf("QEMU closed the connection: %w", err)
			for _, answer := range s.waiting {
				close(answer)
			}
			s.mu.Unlock()
			return
		}
		answer := s.waiting[m.ID]
		delete(s.waiting, m.ID)
		s.mu.Unlock()
		if m.Event != "" {
			s.onEvent(m)
		} else if answer != nil {
			answer <- m
		}
	}
}

// call executes a command. Its answer is decoded into result, unless result is nil.
func (s *session) call(ctx context.Context, command string, arguments, result any) error {
	return s.send(ctx, nil, command, arguments, result)
}

// send is call with an open file for QEMU.
func (s *session) send(ctx context.Context, file *os.File, command string, arguments, result any) error {
	id, answer, err := s.expect()
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	request := map[string]any{"execute": command, "id": id}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := s.write(request, file); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", command, ctx.Err())
	case m, open := <-answer:
		if !open {
			return fmt.Errorf("%s: %w", command, s.err)
		}
		return m.decode(command, result)
	}
}

func (s *session) expect() (int, chan message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, nil, s.err
	}
	s.last++
	answer := make(chan message, 1)
	s.waiting[s.last] = answer
	return s.last, answer, nil
}

func (s *session) write(request map[string]any, file *os.File) error {
	line, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	line = append(line, '\n')
	s.mu.Lock() // one message at a time
	defer s.mu.Unlock()
	if file == nil {
		_, err = s.conn.Write(line)
	} else {
		_, _, err = s.conn.WriteMsgUnix(line, syscall.UnixRights(int(file.Fd())), nil)
	}
	return err
}

func (m message) decode(command string, result any) error {
	if m.Error != nil {
		return fmt.Errorf("%s: %w", command, &refusalError{m.Error.Class, m.Error.Description})
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(m.Return, result); err != nil {
		return fmt.Errorf("%s: decode: %w", command, err)
	}
	return nil
}

// refusalError is an error that QEMU or the agent returned.
type refusalError struct{ class, description string }

func (e *refusalError) Error() string { return e.description }

// poll calls done until it returns true or an error.
func poll(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if ended, err := done(); ended || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
