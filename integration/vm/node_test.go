package vm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/jpeg"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	inspect "akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
	"akri.sh/integration/vm"
)

// TestNode plugs devices into a node of a cluster, for brokers that read them, and does to the node
// what happens to machines.
func TestNode(t *testing.T) {
	s := newSite(t, siteConfig{machine: vm.Worker, description: "a node"})
	s.startGuest(t)
	s.install(t, "global.allowDeviceClasses={tpm}")
	for _, c := range deviceCases {
		if c.read != nil {
			t.Run(c.name, func(t *testing.T) { s.testDevice(t, c) })
		}
	}
	t.Run("cameraBroker", s.testCamera)
	s.offerDisks(t, diskRules...)
	for _, e := range nodeEvents {
		t.Run(e.name, func(t *testing.T) { s.testEvent(t, e) })
	}
	t.Run("network", s.testSlowNetwork)
}

// TestArm64 plugs devices into a node of a cluster whose processor is a 64-bit ARM, with the images
// for it. The cluster services run on the processor of this machine.
func TestArm64(t *testing.T) {
	dir := os.Getenv("AKRI_ARM_IMAGES")
	if dir == "" {
		t.Skip("AKRI_ARM_IMAGES is not set; make test-vm sets it")
	}
	s := newSite(t, siteConfig{
		machine: vm.Arm64Worker, description: "a node",
		archive: func(image string) string { return filepath.Join(dir, image+"-arm64.tar") },
	})
	// Before the guest joins: helm would wait for its containers, which takes minutes.
	s.install(t)
	s.startGuest(t)
	s.awaitAgent(t)
	s.awaitNode(t, func(node *corev1.Node) error {
		if node.Labels[corev1.LabelArchStable] != "arm64" {
			return fmt.Errorf("the labels are %v", node.Labels)
		}
		return nil
	})

	s.offerDisks(t, diskRules...)
	for _, d := range nodeDisks {
		t.Run(d.device.Driver, func(t *testing.T) { s.testDisk(t, d, "plugged in, read by a broker, unplugged") })
	}
	t.Run("camera", s.testCamera)
}

// nodeDisk is a disk that a broker reads.
type nodeDisk struct {
	description string
	device      vm.Device
}

var nodeDisks = []nodeDisk{
	{"USB disk", vm.Device{Driver: "usb-storage", Port: "2", Serial: "SITEUSB"}},
	{"NVMe disk", vm.Device{Driver: "nvme", Port: "rp1", Serial: "SITENVME"}},
	{"virtio disk", vm.Device{Driver: "virtio-blk-pci", Port: "rp2", Serial: "SITEVIRTIO"}},
}

// content of a disk is printable characters, of which brokers read the first.
func content(device vm.Device) string { return strings.Repeat("content of "+device.Serial+" ", 50) }

// plugDisk plugs a disk in, and returns its content.
func (s *site) plugDisk(t *testing.T, device vm.Device) (*vm.Plugged, string) {
	t.Helper()
	text := content(device)
	plugged, err := s.node.PlugDisk(t.Context(), device, []byte(text))
	require.NoError(t, err)
	return plugged, text
}

func (s *site) testDisk(t *testing.T, d nodeDisk, done string) {
	var seen string
	t.Cleanup(func() { results.add(t, d.description+" of "+s.description, done, seen) })
	started := time.Now()
	disk, content := s.plugDisk(t, d.device)
	s.awaitDisk(t, content)
	read := since(started)

	started = time.Now()
	unplug(t, disk)
	s.awaitNothing(t)
	seen = fmt.Sprintf("read after %s, Instance and broker gone after %s", read, since(started))
}

func since(started time.Time) time.Duration { return time.Since(started).Round(time.Second) }

// testDevice reads a device in a broker.
func (s *site) testDevice(t *testing.T, c deviceCase) {
	done, broker := "plugged in, read by a broker, unplugged", fmt.Sprintf(shellBroker, false, "[]")
	if c.hostNetwork {
		done, broker = "plugged in, read by a broker with the host network, unplugged", fmt.Sprintf(shellBroker, true, "[NET_ADMIN]")
	}
	var seen string
	t.Cleanup(func() { results.add(t, c.description+" of "+s.description, done, seen) })
	offered := configuration("device", []string{c.rule}, broker)
	require.NoError(t, s.akri.ApplyText(t.Context(), offered))

	started := time.Now()
	plugged := c.plug(t, s.node.Guest)
	defer c.unplug(t, s.node.Guest, plugged) // after a failure, for the other tests
	_, reader := s.awaitBroker(t, "device")
	c.read(t, s.inBroker(&reader), plugged)
	read := since(started)

	started = time.Now()
	c.unplug(t, s.node.Guest, plugged)
	s.awaitNothing(t)
	seen = fmt.Sprintf("read after %s, Instance and broker gone after %s", read, since(started))
	require.NoError(t, s.akri.DeleteText(t.Context(), offered))
}

// testCamera captures frames of a test pattern with the camera broker.
func (s *site) testCamera(t *testing.T) {
	var seen string
	t.Cleanup(func() {
		results.add(t, "camera (vivid) of a node", "plugged in, a frame fetched from the camera broker, unplugged", seen)
	})
	require.NoError(t, s.akri.ApplyText(t.Context(), cameraConfiguration))
	started := time.Now()
	run(t, s.node.Guest, "modprobe vivid n_devs=1 node_types=0x1 num_inputs=1 input_types=0x0")
	_, broker := s.awaitBroker(t, "cameras")
	ctx, cancel := context.WithTimeout(t.Context(), siteTimeout)
	defer cancel()
	require.NoError(t, mesh.Await(ctx, "frame of the camera", func(ctx context.Context) error { return s.fetchFrame(ctx, &broker) }))
	seen = fmt.Sprintf("frame after %s", since(started))

	require.NoError(t, s.akri.DeleteText(ctx, cameraConfiguration))
	s.awaitNothing(t)
	run(t, s.node.Guest, "modprobe --remove vivid")
}

// fetchFrame fetches a frame and finds the test pattern in it, whose bars have several colours.
func (s *site) fetchFrame(ctx context.Context, broker *corev1.Pod) error {
	body, err := s.akri.Kubernetes.CoreV1().Pods(broker.Namespace).ProxyGet("", broker.Name, "8083", "snapshot.jpg", nil).DoRaw(ctx)
	if err != nil {
		return err
	}
	frame, err := jpeg.Decode(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("decode frame: %w", err)
	}
	colours := map[[3]uint32]bool{}
	bounds := frame.Bounds()
	for x := bounds.Min.X; x < bounds.Max.X; x++ {
		r, g, b, _ := frame.At(x, (bounds.Min.Y+bounds.Max.Y)/2).RGBA()
		colours[[3]uint32{r >> 14, g >> 14, b >> 14}] = true
	}
	if len(colours) < 6 {
		return fmt.Errorf("the frame of %v has %d colours", bounds, len(colours))
	}
	return nil
}

// nodeEvent is what happens to a node while a broker reads a disk.
type nodeEvent struct {
	name, description string
	// happen returns when the node can become ready again. It returns the disk, which a guest that
	// was switched off gets again.
	happen func(s *site, t *testing.T, disk *vm.Plugged) *vm.Plugged
	// boots is set if the kernel starts again.
	boots bool
}

var nodeEvents = []nodeEvent{
	{"power", "power lost, and booted with the same disk of the system", (*site).losePower, true},
	{"panic", "kernel panic, and booted", (*site).panicKernel, true},
	{"freeze", "suspended for two minutes, so that its clock is behind", (*site).freeze, false},
	{"clock", "started with a clock of six weeks ago, which is set later", (*site).setClockBack, false},
	{"full", "disk of the system full while Akri starts", (*site).fillDisk, false},
	{"readonly", "disk of the system read-only after an error, and booted", (*site).makeReadOnly, true},
}

// testEvent lets the event happen. Afterwards there is the same Instance, and one broker, which
// reads the disk.
func (s *site) testEvent(t *testing.T, e nodeEvent) {
	var seen string
	t.Cleanup(func() { results.add(t, "node with a USB disk that a broker reads", e.description, seen) })
	disk, content := s.plugDisk(t, nodeDisks[0].device)
	before := s.awaitDisk(t, content)
	booted := s.bootID(t)

	disk = e.happen(s, t, disk)
	started := time.Now()
	s.awaitNode(t, func(node *corev1.Node) error {
		if e.boots == (node.Status.NodeInfo.BootID == booted) {
			return fmt.Errorf("the boot id is %s", node.Status.NodeInfo.BootID)
		}
		return ready(node)
	})
	took := since(started)
	after := s.awaitDisk(t, content)
	require.Equal(t, before.UID, after.UID, "the Instance was created again")
	seen = fmt.Sprintf("node ready after %s, disk read after %s", took, since(started))

	unplug(t, disk)
	s.awaitNothing(t)
}

func (s *site) losePower(t *testing.T, _ *vm.Plugged) *vm.Plugged {
	t.Helper()
	s.node.PowerOff()
	require.NoError(t, s.node.PowerOn(t.Context()))
	disk, _ := s.plugDisk(t, nodeDisks[0].device)
	return disk
}

func (s *site) panicKernel(t *testing.T, disk *vm.Plugged) *vm.Plugged {
	t.Helper()
	run(t, s.node.Guest, "(sleep 1; echo c >/proc/sysrq-trigger) >/dev/null 2>&1 &")
	return disk
}

func (s *site) freeze(t *testing.T, disk *vm.Plugged) *vm.Plugged {
	t.Helper()
	require.NoError(t, s.node.Freeze(t.Context()))
	frozen := time.Now()
	s.awaitNode(t, func(node *corev1.Node) error {
		if ready(node) == nil {
			return errors.New("the node is ready")
		}
		return nil
	})
	require.NoError(t, cluster.Pause(t.Context(), 2*time.Minute-time.Since(frozen)))
	require.NoError(t, s.node.Continue(t.Context()))
	return disk
}

// setClockBack starts kubelet and agent with an old clock. The certificates of the cluster are
// older, but those of Akri are not valid yet, until the clock is set.
func (s *site) setClockBack(t *testing.T, disk *vm.Plugged) *vm.Plugged {
	t.Helper()
	require.NoError(t, s.node.SetClock(t.Context(), time.Now().Add(-42*24*time.Hour)))
	run(t, s.node.Guest, "systemctl restart kubelet")
	s.deleteAgent(t)
	s.awaitReporting(t, metav1.ConditionFalse)
	s.awaitCause(t, explain.ClockWrong, "the clock of guest is 42d behind that of the API server")

	require.NoError(t, s.node.SetClock(t.Context(), time.Now()))
	started := time.Now()
	s.awaitReporting(t, metav1.ConditionTrue)
	t.Logf("the node reports %s after its clock was set", since(started))
	return disk
}

// awaitCause waits until kubectl akri explain states the cause for the node.
func (s *site) awaitCause(t *testing.T, id explain.CauseID, message string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), siteTimeout)
	defer cancel()
	config, err := s.akri.Cluster.RESTConfig()
	require.NoError(t, err)
	client, err := inspect.New(config)
	require.NoError(t, err)
	require.NoError(t, mesh.Await(ctx, "cause of the node", func(ctx context.Context) error {
		snapshot, err := client.Snapshot(ctx, "")
		if err != nil {
			return err
		}
		verdict := explain.Node(snapshot, explain.Find(snapshot.Nodes, "", guestNode))
		if len(verdict.Causes) == 0 || verdict.Causes[0].ID != id || !strings.Contains(verdict.Causes[0].Message, message) {
			return fmt.Errorf("the verdict is %+v", verdict)
		}
		return nil
	}))
}

// fillDisk fills the disk of the system, and deletes the agent there, whose next Pod cannot start.
func (s *site) fillDisk(t *testing.T, disk *vm.Plugged) *vm.Plugged {
	t.Helper()
	run(t, s.node.Guest, `free=$(stat --file-system --format=%f /state) size=$(stat --file-system --format=%S /state)
until fallocate --length $((free * size)) /state/full; do free=$((free - 100)); done
dd if=/dev/zero of=/state/rest bs=4096 || true`)
	s.deleteAgent(t)
	s.awaitEvent(t, "no space left on device")
	run(t, s.node.Guest, "rm /state/full /state/rest")
	return disk
}

// makeReadOnly reports an error of the file system with the state of the node, which Linux then
// makes read-only, as a distribution lets it do with the disk of the system. Akri and the broker go
// on: the node reports a disk that is plugged in, whose broker cannot start.
func (s *site) makeReadOnly(t *testing.T, disk *vm.Plugged) *vm.Plugged {
	t.Helper()
	run(t, s.node.Guest, `mount --options remount,errors=remount-ro /state
echo test >/sys/fs/ext4/$(basename $(readlink --canonicalize /dev/disk/by-id/virtio-state))/trigger_fs_error
! touch /state/file`)
	_, broker := s.awaitBroker(t, "disks")
	other, _ := s.plugDisk(t, nodeDisks[2].device)
	s.awaitEvent(t, "read-only file system")
	s.awaitReporting(t, metav1.ConditionTrue)
	unplug(t, other)
	s.awaitInstance(t)
	s.awaitRead(t, &broker, content(nodeDisks[0].device))

	run(t, s.node.Guest, "(sleep 1; echo b >/proc/sysrq-trigger) >/dev/null 2>&1 &")
	return disk
}

// deleteAgent deletes the Pod of Akri on the guest. The DaemonSet creates another one.
func (s *site) deleteAgent(t *testing.T) {
	t.Helper()
	s.kubectl(t, "delete", "pods", "--namespace", mesh.Namespace, "--selector", agentLabel,
		"--field-selector", "spec.nodeName="+guestNode)
}

// testSlowNetwork delays and loses packets between the node and the control plane.
func (s *site) testSlowNetwork(t *testing.T) {
	var seen string
	t.Cleanup(func() {
		results.add(t, "node with a network that delays packets by 300 ms and loses 5 %", "USB disk plugged in, read by a broker, unplugged", seen)
	})
	run(t, s.node.Guest, "tc qdisc add dev eth1 root netem delay 300ms 50ms loss 5%")
	defer run(t, s.node.Guest, "tc qdisc del dev eth1 root")
	started := time.Now()
	disk, content := s.plugDisk(t, nodeDisks[0].device)
	s.awaitDisk(t, content)
	read := since(started)

	started = time.Now()
	unplug(t, disk)
	s.awaitNothing(t)
	seen = fmt.Sprintf("read after %s, Instance and broker gone after %s", read, since(started))
}

// awaitReporting waits until all nodes that have reported on the Configuration still do, or until
// one does not.
func (s *site) awaitReporting(t *testing.T, status metav1.ConditionStatus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), siteTimeout)
	defer cancel()
	err := mesh.AwaitObject(ctx, "reports of the nodes", s.akri.Configurations.In("default"), "disks", func(c *akriv0.Configuration) error {
		for _, condition := range c.Status.Conditions {
			if condition.Type == akriv0.ConditionNodesReporting && condition.Status == status {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", c.Status.Conditions)
	})
	require.NoError(t, err)
}

// awaitEvent waits for a Warning about a Pod.
func (s *site) awaitEvent(t *testing.T, message string) {
	t.Helper()
	warnings := metav1.ListOptions{FieldSelector: "type=Warning"}
	awaitObjects(t, "Event", s.akri.Kubernetes.CoreV1().Events(metav1.NamespaceAll), warnings, func(found []corev1.Event) error {
		for i := range found {
			if strings.Contains(found[i].Message, message) {
				return nil
			}
		}
		return fmt.Errorf("%d Warnings do not contain %q", len(found), message)
	})
}
