// Package monitor reports changes of devices. It receives uevents of the kernel and of udevd, and
// watches the udev database.
package monitor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/filewatch"
	"akri.sh/services/handler-udev/internal/udevdb"
)

// Handler receives the changes. A devpath is the path of a device without /sys.
type Handler interface {
	// Changed reports that the device is new or different.
	Changed(devpath string)
	// Removed reports that the kernel removed the device, whose entry in the udev database has a
	// name, not before a time. Sysfs may still show the device for a moment.
	Removed(devpath, entry string, notBefore time.Time)
	// Deleted reports that udevd deleted the entry with a name.
	Deleted(entry string)
	// Resync reports that any device may have changed.
	Resync()
}

// Monitor passes changes to its Handler.
type Monitor struct {
	Handler Handler
	// DatabaseDir is the directory of the udev database.
	DatabaseDir string
	// Devpath returns the devpath of the device that a file of the database describes.
	Devpath func(id string) (devpath string, ok bool)
	// CountLost is called when events were lost.
	CountLost func()
	Log       *zap.Logger
}

// Run reports changes until ctx ends.
func (m *Monitor) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return m.receiveUevents(ctx) })
	group.Go(func() error { m.watchDatabase(ctx); return nil })
	return group.Wait()
}

func (m *Monitor) receiveUevents(ctx context.Context) error {
	socket, err := Listen()
	if err != nil {
		m.Log.Warn("opening the uevent socket failed; only the periodic resync detects changes", zap.Error(err))
		return nil
	}
	m.Handler.Resync() // for changes before the first event
	return socket.Receive(ctx, func(event Event, err error) {
		if err != nil {
			m.CountLost()
			m.Handler.Resync()
			return
		}
		m.handle(event)
	})
}

func (m *Monitor) handle(event Event) {
	switch {
	case event.Action == "remove" && event.Udevd:
		// The kernel's event came before it, and another device may already have the path.
	case event.Action == "remove":
		m.Handler.Removed(event.Devpath, event.Entry, event.NotBefore)
	default:
		m.Handler.Changed(event.Devpath)
		if event.OldDevpath != "" {
			m.Handler.Changed(event.OldDevpath)
		}
	}
}

// watchDatabase watches the files that udevd writes. The events of udevd stay in its own network
// namespace, which a Pod usually does not share; the files are visible everywhere. The directory
// appears when udevd starts.
func (m *Monitor) watchDatabase(ctx context.Context) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		m.Log.Info("watching the udev database failed; only the periodic resync updates its properties", zap.Error(err))
		return
	}
	defer func() { _ = watcher.Close() }()
	appeared := broadcast.NewSignal()
	defer filewatch.Watch(m.DatabaseDir, appeared.Notify)()
	appeared.Notify()
	for {
		select {
		case <-ctx.Done():
			return
		case <-appeared:
			if watcher.Add(m.DatabaseDir) == nil {
				m.Handler.Resync()
			}
		case event := <-watcher.Events:
			switch entry := filepath.Base(event.Name); {
			case strings.HasPrefix(entry, "."): // udevd writes to such a file before it renames it
			case event.Has(fsnotify.Remove):
				m.Handler.Deleted(entry)
			case event.Has(fsnotify.Create) || event.Has(fsnotify.Write):
				m.databaseChanged(entry)
			}
		case err := <-watcher.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				m.CountLost()
			}
			m.Handler.Resync()
		}
	}
}

// databaseChanged handles a change of the file with the device id as its name.
func (m *Monitor) databaseChanged(id string) {
	if devpath, ok := m.Devpath(id); ok {
		m.Handler.Changed(devpath)
	}
}

const (
	// multicastGroups are those of the kernel (1) and of udevd (2). Messages of the kernel reach
	// every network namespace of the initial user namespace, those of udevd only its own.
	multicastGroups = 1 | 2
	// receiveBufferSize holds a few thousand events, as a large USB hub causes.
	receiveBufferSize = 4 << 20
	// maxMessageSize is far above the limit of the kernel.
	maxMessageSize = 16 << 10
)

// ErrLost means that the kernel dropped events because the receive buffer was full.
var ErrLost = errors.New("uevents were lost")

// Socket receives uevents. It replaces the monitor of go-udev, which does not report lost events,
// needs one socket and one thread per group, and wakes up each second.
type Socket struct{ file *os.File }

// Listen opens a Socket, which receives all later events.
func Listen() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open uevent socket: %w", err)
	}
	// Without the permission to enlarge the buffer, the default size is used.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBufferSize)
	address := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: multicastGroups}
	if err := unix.Bind(fd, address); err != nil {
		return nil, errors.Join(fmt.Errorf("bind uevent socket: %w", err), unix.Close(fd))
	}
	return &Socket{file: os.NewFile(uintptr(fd), "uevents")}, nil
}

// Receive calls handle with each event, and with ErrLost when events were lost, until ctx ends. It
// closes the socket.
func (s *Socket) Receive(ctx context.Context, handle func(Event, error)) error {
	stop := context.AfterFunc(ctx, func() { _ = s.file.Close() })
	defer func() {
		if stop() {
			_ = s.file.Close()
		}
	}()
	reader, err := s.newReader()
	if err != nil {
		return err
	}
	buffer := make([]byte, maxMessageSize)
	for {
		n, err := reader.read(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			handle(Event{}, ErrLost)
		case err != nil:
			return fmt.Errorf("read uevents: %w", err)
		default:
			// A malformed message is not about a device.
			if event, err := Parse(buffer[:n]); err == nil {
				event.NotBefore = reader.empty
				handle(event, nil)
			}
		}
	}
}

// reader reads messages and records when there were none: the kernel sent the following ones later.
// They have no time.
type reader struct {
	conn  syscall.RawConn
	empty time.Time
}

func (s *Socket) newReader() (*reader, error) {
	conn, err := s.file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("read uevents: %w", err)
	}
	return &reader{conn: conn}, nil
}

func (r *reader) read(buffer []byte) (n int, err error) {
	waited := r.conn.Read(func(fd uintptr) bool {
		for {
			now := time.Now()
			n, err = unix.Read(int(fd), buffer)
			switch {
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				r.empty = now
				return false
			default:
				return true
			}
		}
	})
	return n, errors.Join(waited, err)
}

// Event is a uevent of one device.
type Event struct {
	// Action is add, change, remove, bind, unbind, move, online or offline.
	Action string
	// Devpath is the path of the device without /sys. OldDevpath is the previous path after a move.
	Devpath    string
	OldDevpath string
	// Udevd means that udevd sent the event, after the kernel.
	Udevd bool
	// Entry is the name of the device's entry in the udev database.
	Entry string
	// NotBefore is a time at which the event was not sent yet.
	NotBefore time.Time
}

var errMalformed = errors.New("malformed uevent")

// The header of udevd's messages, monitor_netlink_header of libudev: "libudev", a zero byte, a
// magic number in network byte order and then, in native byte order, the size of the header and the
// offset and length of the properties.
const (
	udevPrefix       = "libudev\x00"
	udevMagic        = 0xfeedcafe
	magicOffset      = 8
	propertiesOffset = 16
	lengthOffset     = 20
	headerSize       = 24
)

// Parse reads a message of the kernel or of udevd.
func Parse(message []byte) (Event, error) {
	properties, err := properties(message)
	if err != nil {
		return Event{}, err
	}
	values := map[string]string{}
	for line := range bytes.SplitSeq(properties, []byte{0}) {
		key, value, _ := strings.Cut(string(line), "=")
		values[key] = value
	}
	event := Event{
		Action: values["ACTION"], Devpath: values["DEVPATH"], OldDevpath: values["DEVPATH_OLD"],
		Udevd: bytes.HasPrefix(message, []byte(udevPrefix)),
		Entry: udevdb.Entry(func(key string) string { return values[key] }),
	}
	if event.Action == "" || !strings.HasPrefix(event.Devpath, "/") {
		return Event{}, errMalformed
	}
	return event, nil
}

// properties returns the KEY=value part of a message.
func properties(message []byte) ([]byte, error) {
	if !bytes.HasPrefix(message, []byte(udevPrefix)) {
		// Messages of the kernel start with action@devpath.
		_, properties, ok := bytes.Cut(message, []byte{0})
		if !ok {
			return nil, errMalformed
		}
		return properties, nil
	}
	if len(message) < headerSize || binary.BigEndian.Uint32(message[magicOffset:]) != udevMagic {
		return nil, errMalformed
	}
	offset := uint64(binary.NativeEndian.Uint32(message[propertiesOffset:]))
	length := uint64(binary.NativeEndian.Uint32(message[lengthOffset:]))
	if offset+length > uint64(len(message)) {
		return nil, errMalformed
	}
	return message[offset : offset+length], nil
}
