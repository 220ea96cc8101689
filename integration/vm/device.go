package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sectorSize is that of the disks. QEMU does not show an incomplete sector.
const sectorSize = 512

// Device describes a device of QEMU.
type Device struct {
	// Driver is the name in QEMU, such as usb-kbd.
	Driver string
	// Port is a port of the USB controller (1 to 8, or 6.3 behind a hub in port 6), or a PCIe port
	// (rp1 to rp8).
	Port   string
	Serial string
	// Options are further properties in QEMU.
	Options map[string]any
}

// Plugged is a device in a guest.
type Plugged struct {
	guest *Guest
	id    string
	// release frees what the device needs in QEMU and in this process.
	release func(context.Context) error
}

// Plug plugs a device in. It returns before the guest has seen the device.
func (g *Guest) Plug(ctx context.Context, device Device) (*Plugged, error) {
	p := &Plugged{guest: g, id: g.nextID(), release: func(context.Context) error { return nil }}

	arguments := map[string]any{"driver": device.Driver, "id": p.id}
	maps.Copy(arguments, device.Options)
	if strings.HasPrefix(device.Port, "rp") {
		arguments["bus"] = device.Port
	} else {
		arguments["bus"], arguments["port"] = "xhci.0", device.Port
	}
	if device.Serial != "" {
		arguments["serial"] = device.Serial
	}

	if err := g.monitor.call(ctx, "device_add", arguments, nil); err != nil {
		return nil, fmt.Errorf("plug %s into port %s: %w", device.Driver, device.Port, err)
	}
	return p, nil
}

// PlugSerial plugs a USB serial adapter in. The connection is the other end of its line.
func (g *Guest) PlugSerial(ctx context.Context, port, serial string) (*Plugged, net.Conn, error) {
	conn, other, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	defer other.Close()

	line := g.nextID()
	if err := g.monitor.send(ctx, other, "getfd", map[string]any{"fdname": line}, nil); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}

	backend := map[string]any{"type": "socket", "data": map[string]any{
		"addr": map[string]any{"type": "fd", "data": map[string]any{"str": line}}, "server": false,
	}}
	if err := g.monitor.call(ctx, "chardev-add", map[string]any{"id": line, "backend": backend}, nil); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	release := func(ctx context.Context) error {
		return errors.Join(g.monitor.call(ctx, "chardev-remove", map[string]any{"id": line}, nil), conn.Close())
	}

	// Without always-plugged the guest sees the adapter only while the line is connected.
	p, err := g.plugBackend(ctx, Device{
		Driver: "usb-serial", Port: port, Serial: serial, Options: map[string]any{"chardev": line, "always-plugged": true},
	}, release)
	if err != nil {
		return nil, nil, err
	}
	return p, conn, nil
}

// PlugDisk plugs a disk with the content in: usb-storage, nvme or virtio-blk-pci. Zeros follow the
// content up to the end of its last sector.
func (g *Guest) PlugDisk(ctx context.Context, device Device, content []byte) (*Plugged, error) {
	file, err := memoryFile(content)
	if err != nil {
		return nil, err
	}
	p, err := g.plugFile(ctx, device, file, false)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	release := p.release
	p.release = func(ctx context.Context) error { return errors.Join(release(ctx), file.Close()) }
	return p, nil
}

// plugFile plugs a disk in whose content is the file. The file must stay open until the disk is
// unplugged.
func (g *Guest) plugFile(ctx context.Context, device Device, file *os.File, readOnly bool) (*Plugged, error) {
	node := g.nextID()
	backend := map[string]any{
		"driver": "file", "node-name": node, "read-only": readOnly,
		// QEMU opens the file by the descriptor of this process, so that it needs no name.
		"filename": fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd()),
	}
	if err := g.monitor.call(ctx, "blockdev-add", backend, nil); err != nil {
		return nil, err
	}
	release := func(ctx context.Context) error {
		return g.monitor.call(ctx, "blockdev-del", map[string]any{"node-name": node}, nil)
	}

	options := maps.Clone(device.Options)
	if options == nil {
		options = map[string]any{}
	}
	options["drive"] = node
	device.Options = options
	return g.plugBackend(ctx, device, release)
}

// plugNetwork plugs a network interface in that is connected to a tap device, in the network
// namespace of QEMU.
func (g *Guest) plugNetwork(ctx context.Context, port, tap, mac string) (*Plugged, error) {
	backend := g.nextID()
	arguments := map[string]any{"type": "tap", "id": backend, "ifname": tap, "script": "no", "downscript": "no"}
	if err := g.monitor.call(ctx, "netdev_add", arguments, nil); err != nil {
		return nil, err
	}
	release := func(ctx context.Context) error {
		return g.monitor.call(ctx, "netdev_del", map[string]any{"id": backend}, nil)
	}
	device := Device{Driver: "virtio-net-pci", Port: port, Options: map[string]any{"netdev": backend, "mac": mac}}
	return g.plugBackend(ctx, device, release)
}

// plugBackend plugs a device in. release frees what it needs in QEMU.
func (g *Guest) plugBackend(ctx context.Context, device Device, release func(context.Context) error) (*Plugged, error) {
	p, err := g.Plug(ctx, device)
	if err != nil {
		return nil, errors.Join(err, release(ctx))
	}
	p.release = release
	return p, nil
}

// PlugCAN plugs a CAN card in, on a bus of its own, which exists until the guest ends.
func (g *Guest) PlugCAN(ctx context.Context, device Device) (*Plugged, error) {
	bus := g.nextID()
	if err := g.monitor.call(ctx, "object-add", map[string]any{"qom-type": "can-bus", "id": bus}, nil); err != nil {
		return nil, err
	}
	device.Options = map[string]any{"canbus": bus}
	return g.Plug(ctx, device)
}

// memoryFile returns a file without a name that the kernel frees with its last descriptor.
func memoryFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("disk", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "disk")
	sectors := (len(content) + sectorSize - 1) / sectorSize
	_, err = file.Write(content)
	if err := errors.Join(err, file.Truncate(int64(sectors*sectorSize))); err != nil {
		return nil, errors.Join(fmt.Errorf("write disk: %w", err), file.Close())
	}
	return file, nil
}

// Unplug pulls the device and returns when QEMU has removed it. The guest must cooperate for PCIe
// devices. A device that was pulled together with its hub is only released.
func (p *Plugged) Unplug(ctx context.Context) error {
	deleted := p.guest.expectDeletion(p.id)
	err := p.guest.monitor.call(ctx, "device_del", map[string]any{"id": p.id}, nil)
	if refusal, ok := errors.AsType[*refusalError](err); ok && refusal.class == "DeviceNotFound" {
		return p.release(ctx)
	}
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("unplug %s: %w", p.id, ctx.Err())
	case <-deleted:
		return p.release(ctx)
	}
}

// Press presses and releases a key of the guest's keyboards, such as a.
func (g *Guest) Press(ctx context.Context, key string) error {
	_, err := g.humanCommand(ctx, "sendkey "+key)
	return err
}

func (g *Guest) nextID() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plugged++
	return "plugged" + strconv.Itoa(g.plugged)
}

func (g *Guest) expectDeletion(id string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	deleted := make(chan struct{})
	g.deletion[id] = deleted
	return deleted
}

func (g *Guest) onEvent(event message) {
	var device struct {
		ID string `json:"device"`
	}
	if event.Event != "DEVICE_DELETED" || json.Unmarshal(event.Data, &device) != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if deleted := g.deletion[device.ID]; deleted != nil {
		close(deleted)
		delete(g.deletion, device.ID)
	}
}
