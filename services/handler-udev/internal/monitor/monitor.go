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

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Handler receives the changes. A devpath is the path of a device without /sys.
type Handler interface {
	// Changed reports that the device is new or different.
	Changed(devpath string)
	// Removed reports that the device was removed. Sysfs may still show it for a moment.
	Removed(devpath string)
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
		switch {
		case err != nil:
			m.CountLost()
			m.Handler.Resync()
		case event.Action == "remove":
			m.Handler.Removed(event.Devpath)
		default:
			m.Handler.Changed(event.Devpath)
			if event.OldDevpath != "" {
				m.Handler.Changed(event.OldDevpath)
			}
		}
	})
}

// watchDatabase watches the files that udevd writes. The events of udevd stay in its own network
// namespace, which a Pod usually does not share; the files are visible everywhere.
func (m *Monitor) watchDatabase(ctx context.Context) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer func() { _ = watcher.Close() }()
		err = watcher.Add(m.DatabaseDir)
	}
	if err != nil {
		m.Log.Info("watching the udev database failed; only the periodic resync updates its properties", zap.Error(err))
		return
	}
	m.Handler.Resync()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-watcher.Events:
			if event.Has(fsnotify.Create) || event.Has(fsnotify.Write) {
				m.databaseChanged(filepath.Base(event.Name))
			}
		case err := <-watcher.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				m.CountLost()
			}
			m.Handler.Resync()
		}
	}
}

// databaseChanged handles a change of the file with the device id as its name. udevd writes to a
// file with a leading dot before it renames it.
func (m *Monitor) databaseChanged(id string) {
	if strings.HasPrefix(id, ".") {
		return
	}
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
	buffer := make([]byte, maxMessageSize)
	for {
		n, err := s.file.Read(buffer)
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
				handle(event, nil)
			}
		}
	}
}

// Event is a uevent of one device.
type Event struct {
	// Action is add, change, remove, bind, unbind, move, online or offline.
	Action string
	// Devpath is the path of the device without /sys. OldDevpath is the previous path after a move.
	Devpath    string
	OldDevpath string
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
	var event Event
	for line := range bytes.SplitSeq(properties, []byte{0}) {
		key, value, _ := strings.Cut(string(line), "=")
		switch key {
		case "ACTION":
			event.Action = value
		case "DEVPATH":
			event.Devpath = value
		case "DEVPATH_OLD":
			event.OldDevpath = value
		}
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
