// Package vm runs guests with a Linux kernel of their own under QEMU, plugs devices into them and
// runs commands in them.
package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startTimeout limits the start from a snapshot, which takes about a second on an idle machine.
	startTimeout = time.Minute
	// rootPorts is the number of PCIe devices that can be plugged in: rp1 and so on.
	rootPorts = 8
	// The descriptors that QEMU inherits, from the first of exec.Cmd.ExtraFiles.
	monitorDescriptor, agentDescriptor, snapshotDescriptor = 3, 4, 5
)

// Machine is the architecture and the size of a guest.
type Machine struct {
	// Architecture is amd64 or arm64, as Go and Debian name them.
	Architecture string
	// Memory is in MiB.
	Memory, Processors int
	// Init is the path of the first process. Default: systemd.
	Init string
}

// Machines that the tests use.
var (
	// Plain runs commands and a service.
	Plain = Machine{Architecture: "amd64", Memory: 512, Processors: 1}
	// Worker runs a node of a cluster.
	Worker = Machine{Architecture: "amd64", Memory: 2048, Processors: 2}
	// WorkerWithoutSystemd has no systemd and no udevd.
	WorkerWithoutSystemd = Machine{Architecture: "amd64", Memory: 2048, Processors: 2, Init: "/lib/busybox/init"}
	// Arm64Worker runs a node of a cluster.
	Arm64Worker = Machine{Architecture: "arm64", Memory: 2048, Processors: 2}
)

func (m Machine) initParameter() string {
	if m.Init == "" {
		return ""
	}
	return " init=" + m.Init
}

// Command returns a command like exec.CommandContext, possibly one in other namespaces.
type Command func(ctx context.Context, name string, args ...string) (*exec.Cmd, error)

// Guest is a running machine.
type Guest struct {
	command *exec.Cmd
	monitor *session
	agent   *session
	console *tail
	exited  chan struct{}

	mu       sync.Mutex
	plugged  int
	deletion map[string]chan struct{} // by the id of the device
}

// Start starts a guest from the snapshot. ctx limits the start; the guest runs until Close, or
// until this process ends.
func (i *Image) Start(ctx context.Context) (*Guest, error) {
	snapshot, err := os.Open(i.snapshot)
	if err != nil {
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	defer snapshot.Close()
	g, err := i.launch(snapshot) //nolint:contextcheck // it runs until Close
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = g.awaitAgent(ctx)
	if err == nil {
		// The clock continues from the time of the snapshot.
		err = g.SetClock(ctx, time.Now())
	}
	if err != nil {
		g.Close()
		return nil, fmt.Errorf("start a guest: %w\n%s", err, g.Console())
	}
	return g, nil
}

// Boot starts a guest without the snapshot, and returns when its services have started. It takes
// longer than Start. A guest that booted has a boot id of its own.
func (i *Image) Boot(ctx context.Context) (*Guest, error) {
	g, err := i.launch(nil) //nolint:contextcheck // it runs until Close
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if err := g.awaitBoot(ctx); err != nil {
		g.Close()
		return nil, fmt.Errorf("boot a guest: %w\n%s", err, g.Console())
	}
	return g, nil
}

// awaitBoot returns when the services of a guest that boots have started.
func (g *Guest) awaitBoot(ctx context.Context) error {
	if err := g.awaitAgent(ctx); err != nil {
		return err
	}
	_, err := g.Run(ctx, "[ ! -d /run/systemd/system ] || { systemctl is-system-running --wait && udevadm settle; }")
	return err
}

// On returns the image for guests whose QEMU is started by the command, such as Cluster.Neighbour.
func (i *Image) On(command Command) *Image {
	on := *i
	on.command = command
	return &on
}

// arguments are those of QEMU except descriptors. A snapshot fits only the same arguments.
func (i *Image) arguments() []string {
	emulated := architectures[i.machine.Architecture]
	arguments := []string{
		// Emulation also where /dev/kvm exists: nested virtualization is often slower than
		// emulation, and does not run all kernels.
		"-accel", "tcg,thread=multi,tb-size=256", "-cpu", emulated.processor, "-machine", emulated.board,
		"-smp", strconv.Itoa(i.machine.Processors), "-m", strconv.Itoa(i.machine.Memory),
		"-nodefaults", "-no-user-config", "-display", "none",
		"-kernel", filepath.Join(i.dir, "vmlinuz"), "-initrd", filepath.Join(i.dir, "initrd"),
		"-append", "console=" + emulated.console + " panic=-1 mitigations=off random.trust_cpu=on net.ifnames=0 quiet loglevel=4 systemd.show_status=0" +
			i.machine.initParameter(),
		"-drive", "if=none,id=root,format=raw,readonly=on,file=" + filepath.Join(i.dir, "root.erofs"),
		"-device", "virtio-blk-pci,drive=root,addr=3",
		"-device", "virtio-serial-pci,addr=4",
		"-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
		"-device", "virtio-rng-pci,addr=5",
		// The guest has no access to the network of this machine.
		"-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net,addr=6",
		"-device", "qemu-xhci,id=xhci,addr=7,p2=8,p3=8",
		"-audiodev", "none,id=silence",
	}

	for n := range rootPorts {
		port := fmt.Sprintf("pcie-root-port,id=rp%d,chassis=%[1]d,slot=%[1]d,addr=%d", n+1, n+8)
		arguments = append(arguments, "-device", port)
	}
	return arguments
}

// launch starts QEMU, with the state of the snapshot unless it is nil.
func (i *Image) launch(snapshot *os.File) (*Guest, error) {
	g := &Guest{console: &tail{}, exited: make(chan struct{}), deletion: map[string]chan struct{}{}}
	monitor, monitorEnd, err := newSession(g.onEvent)
	if err != nil {
		return nil, err
	}
	defer monitorEnd.Close()
	agent, agentEnd, err := newSession(nil)
	if err != nil {
		return nil, errors.Join(err, monitor.conn.Close())
	}
	defer agentEnd.Close()
	g.monitor, g.agent = monitor, agent

	// Close ends it, not a context.
	g.command, err = i.command(context.Background(), architectures[i.machine.Architecture].qemu, append(i.arguments(),
		"-chardev", "socket,id=monitor,fd="+strconv.Itoa(monitorDescriptor), "-mon", "chardev=monitor,mode=control",
		"-chardev", "socket,id=agent,fd="+strconv.Itoa(agentDescriptor),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console")...)
	if err != nil {
		return nil, errors.Join(err, monitor.conn.Close(), agent.conn.Close())
	}
	g.command.ExtraFiles = []*os.File{monitorEnd, agentEnd}
	if snapshot != nil {
		g.command.Args = append(g.command.Args, "-incoming", "fd:"+strconv.Itoa(snapshotDescriptor))
		g.command.ExtraFiles = append(g.command.ExtraFiles, snapshot)
	}
	g.command.Stdout, g.command.Stderr = g.console, g.console
	// The kernel kills QEMU when this process is killed. QEMU has no files, sockets and processes
	// of its own that could remain.
	g.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := g.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start QEMU: %w", err), monitor.conn.Close(), agent.conn.Close())
	}
	go func() {
		defer close(g.exited)
		_ = g.command.Wait() // Close kills it; the output of other exits is in the console
	}()
	return g, nil
}

// startCommand starts QEMU in the namespaces of this process.
func startCommand(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	return exec.CommandContext(ctx, name, args...), nil
}

// awaitAgent returns when the guest agent answers.
func (g *Guest) awaitAgent(ctx context.Context) error {
	if err := g.monitor.call(ctx, "qmp_capabilities", nil, nil); err != nil {
		return err
	}
	return g.agent.call(ctx, "guest-ping", nil, nil)
}

// Close ends the guest like a loss of power.
func (g *Guest) Close() {
	_ = g.command.Process.Kill()
	<-g.exited
	_ = g.monitor.conn.Close()
	_ = g.agent.conn.Close()
}

// Freeze stops the processor until Continue, as a hypervisor does that moves or suspends a guest.
// The clock of the guest stops, too.
func (g *Guest) Freeze(ctx context.Context) error { return g.monitor.call(ctx, "stop", nil, nil) }

// Continue ends Freeze.
func (g *Guest) Continue(ctx context.Context) error { return g.monitor.call(ctx, "cont", nil, nil) }

// SetClock sets the wall clock of the guest.
func (g *Guest) SetClock(ctx context.Context, now time.Time) error {
	return g.agent.call(ctx, "guest-set-time", map[string]any{"time": now.UnixNano()}, nil)
}

// PID is the process id of QEMU.
func (g *Guest) PID() int { return g.command.Process.Pid }

// Console is the last output of QEMU and of the guest's console.
func (g *Guest) Console() string { return g.console.String() }

// Logs are the last messages of the guest's kernel and services.
func (g *Guest) Logs(ctx context.Context) (string, error) {
	return g.Run(ctx, "journalctl --no-pager --boot --lines 200 || tail --lines=50 /var/log/*.log")
}

// Forward returns an address on this machine that is the TCP port of the guest.
func (g *Guest) Forward(ctx context.Context, port int) (string, error) {
	if _, err := g.humanCommand(ctx, fmt.Sprintf("hostfwd_add net tcp:127.0.0.1:0-:%d", port)); err != nil {
		return "", err
	}
	table, err := g.humanCommand(ctx, "info usernet")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(table) {
		// TCP[HOST_FORWARD]  12  127.0.0.1 41017  10.0.2.15 10000  0  0
		fields := strings.Fields(line)
		if len(fields) > 5 && fields[0] == "TCP[HOST_FORWARD]" && fields[5] == strconv.Itoa(port) {
			return fields[2] + ":" + fields[3], nil
		}
	}
	return "", fmt.Errorf("forward port %d: QEMU has no such port:\n%s", port, table)
}

// humanCommand executes a command that QMP does not have. Its errors are text.
func (g *Guest) humanCommand(ctx context.Context, line string) (output string, err error) {
	err = g.monitor.call(ctx, "human-monitor-command", map[string]any{"command-line": line}, &output)
	return output, err
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(text []byte) (int, error) {
	const keep = 32 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-keep):]
	return len(text), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
