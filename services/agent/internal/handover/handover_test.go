package handover_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"akri.sh/libs/node/instancetest"
	"akri.sh/libs/rpctest"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/dra-kubelet-plugin/relay"
)

const (
	undecided    = instancev1.Resources_RESOURCES_UNSPECIFIED
	devicePlugin = instancev1.Resources_RESOURCES_DEVICE_PLUGIN
	dra          = instancev1.Resources_RESOURCES_DRA

	configuration = "akri.sh/cameras"
	slots         = 3 // of each camera
	soon          = time.Minute
	// reclaim exceeds the time after which a slot is released whose use was not seen.
	reclaim = 90 * time.Second
)

var cameras = []string{"cameras-8120fe", "cameras-a19705"}

// operator is a discovery-operator that sees the cameras.
type operator struct {
	discoveryv1.UnimplementedDeviceInventoryServiceServer
}

// WatchDevices implements the API of discovery-operator.
func (operator) WatchDevices(
	_ *discoveryv1.WatchDevicesRequest, stream grpc.ServerStreamingServer[discoveryv1.WatchDevicesResponse],
) error {
	seen := &discoveryv1.ConfigurationDevices{Namespace: "default", Name: "cameras", Complete: true}
	for _, camera := range cameras {
		seen.Devices = append(seen.Devices, &discoveryv1.Device{Id: camera, Instance: camera})
	}
	err := stream.Send(&discoveryv1.WatchDevicesResponse{Configurations: []*discoveryv1.ConfigurationDevices{seen}})
	<-stream.Context().Done()
	return err
}

// machine is a node with the services of both forms.
type machine struct {
	t         *testing.T
	writer    *instancetest.Writer
	kubelet   *kubelet
	processes []*process
	// toggleWriter stops instance-writer, or starts it.
	toggleWriter  func()
	writerStopped bool
	// claimed are the Pods with claims, also those that have ended.
	claimed []func()
	pods    []*pod // that were not ended
	count   int    // of Pods that were started
}

// startMachine starts a node whose cluster has not decided yet how Pods get devices.
func startMachine(t *testing.T, inAgent bool) *machine {
	t.Helper()
	directory, err := os.MkdirTemp("", "h") //nolint:usetesting // paths of t.TempDir are too long for sockets
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(directory)) })
	path := func(name string) string { return filepath.Join(directory, name) }
	address := func(name string) string { return "unix://" + path(name) }
	require.NoError(t, os.Mkdir(path("k"), 0o700))
	require.NoError(t, os.Mkdir(path("r"), 0o700))

	m := &machine{t: t, writer: instancetest.New(), kubelet: startKubelet(t, path("k"), path("r"), path("pods"))}
	for _, camera := range cameras {
		m.writer.PutDevice(camera, camera, "cameras", slots)
	}
	m.writer.OnChange = m.kubelet.check
	serveWriter := func() (stop func()) {
		return rpctest.ServeAt(t, address("w"), func(r grpc.ServiceRegistrar) { instancev1.RegisterInstanceServiceServer(r, m.writer) })
	}
	stopWriter := serveWriter()
	m.toggleWriter = func() {
		if m.writerStopped = !m.writerStopped; m.writerStopped {
			stopWriter()
		} else {
			stopWriter = serveWriter()
		}
	}
	rpctest.ServeAt(t, address("o"), func(r grpc.ServiceRegistrar) { discoveryv1.RegisterDeviceInventoryServiceServer(r, operator{}) })

	host := []string{
		"pod=akri/node", "kubelet-dir=" + path("k"), "pod-resources=" + path("pods"),
		"discovery-operator=" + address("o"), "instance-writer=" + address("w"), "allocator=" + address("a"),
	}
	plugin := append(slices.Clone(host[:5]), "socket="+address("p"), "cdi-dir="+path("cdi"))
	if inAgent {
		flags := []string{
			"--resources=auto", "--registrar-socket=" + address("t"), "--registrar-handlers-dir=" + directory, "--registrar-state-file=" + path("state"),
			"--discovery-operator-node-name=" + nodeName, "--discovery-operator-socket=" + address("d"), "--discovery-operator-registrar=" + address("t"),
			"--discovery-operator-instance-writer=" + address("w"), "--config-plugin-allocator-socket=" + address("a"),
		}
		m.start("agent", slices.Concat(flags, prefixed("--device-plugin-host-", host), prefixed("--dra-kubelet-plugin-", plugin))...)
	} else {
		m.start("config-plugin-allocator", "--socket="+address("a"))
		m.start("device-plugin-host", append(prefixed("--", host), "--resources=auto")...)
		m.start("dra-kubelet-plugin", append(prefixed("--", plugin), "--resources=auto")...)
	}
	m.start(relay.Name, "--pod=akri/node", "--registry-dir="+path("r"), "--plugin="+address("p"))
	return m
}

// prefixed returns the flags of a service that runs on the node.
func prefixed(prefix string, flags []string) []string {
	result := []string{prefix + "node-name=" + nodeName}
	for _, flag := range flags {
		result = append(result, prefix+flag)
	}
	return result
}

func (m *machine) start(name string, flags ...string) {
	m.t.Helper()
	m.processes = append(m.processes, startProcess(m.t, name, flags...))
}

// nextClaim returns a claim of a slot of the camera.
func (m *machine) nextClaim(camera string) *drav1.Claim {
	uid := m.nextName()
	m.writer.PutClaim("default", uid, uid, &instancev1.AllocatedDevice{Request: "r", Pool: "default/" + camera, Device: camera})
	return &drav1.Claim{Namespace: "default", Name: uid, Uid: uid}
}

func (m *machine) nextName() string {
	m.count++
	return fmt.Sprint("pod-", m.count)
}

// startClaimed starts a Pod with a claim.
func (m *machine) startClaimed(camera string) *pod {
	p, await := m.kubelet.startClaimed(m.nextClaim(camera))
	m.pods, m.claimed = append(m.pods, p), append(m.claimed, await)
	return p
}

// awaitAdmitted starts a Pod with a device of a device plugin.
func (m *machine) awaitAdmitted(random *rand.Rand) *pod {
	m.t.Helper()
	var p *pod
	m.await(soon, func() bool { p = m.kubelet.admit(m.nextName(), random); return p != nil }, "a Pod is admitted")
	m.pods = append(m.pods, p)
	return p
}

// end ends a Pod.
func (m *machine) end(p *pod) {
	m.pods = slices.DeleteFunc(m.pods, func(other *pod) bool { return other == p })
	p.end()
}

func (m *machine) running(p *pod) (running bool) {
	m.kubelet.locked(func() { running = p.running })
	return running
}

// reserved returns the number of slots that are not free.
func (m *machine) reserved() (count int) {
	for _, camera := range cameras {
		for _, holder := range m.writer.Usage(camera) {
			if holder != "" {
				count++
			}
		}
	}
	return count
}

// plugins returns the number of device plugins that live.
func (m *machine) plugins() (count int) {
	m.kubelet.locked(func() {
		for _, e := range m.kubelet.endpoints {
			if !e.ended {
				count++
			}
		}
	})
	return count
}

// registrations returns how often the driver was registered.
func (m *machine) registrations() (count int) {
	m.kubelet.locked(func() { count = m.kubelet.drivers })
	return count
}

// awaitLists waits until the service that manages the slots has seen the Pods. Otherwise it
// releases the slot of a Pod that ends only after 20 s.
func (m *machine) awaitLists() {
	m.t.Helper()
	lists := func() (count int) { m.kubelet.locked(func() { count = m.kubelet.lists }); return count }
	before := lists()
	m.await(soon, func() bool { return lists() >= before+2 }, "Pods are listed")
}

func (m *machine) await(timeout time.Duration, condition func() bool, message string, arguments ...any) {
	m.t.Helper()
	require.Eventually(m.t, condition, timeout, pollDelay, fmt.Sprintf(message, arguments...))
}

// checkFaults fails the test if an invariant was broken.
func (m *machine) checkFaults() {
	m.t.Helper()
	m.kubelet.locked(func() { require.Empty(m.t, m.kubelet.faults) })
}

// inBoth runs the test with services in processes of their own, and in the agent.
func inBoth(t *testing.T, test func(t *testing.T, m *machine)) {
	t.Helper()
	for name, inAgent := range map[string]bool{"services": false, "agent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, startMachine(t, inAgent))
		})
	}
}

// The form of a node changes under running Pods, to Dynamic Resource Allocation and back. Pods keep
// their slots until they end, and the slot of each that ends is released, in each form.
func TestFormChangesUnderPods(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, m *machine) {
		random := rand.New(rand.NewPCG(1, 0))
		m.writer.SetResources(undecided)
		require.Never(t, func() bool { return m.plugins() > 0 || m.registrations() > 0 }, 2*time.Second, pollDelay)

		m.writer.SetResources(devicePlugin)
		first, second := m.awaitAdmitted(random), m.awaitAdmitted(random)
		require.Equal(t, 2, m.reserved())
		require.Zero(t, m.registrations())

		m.writer.SetResources(dra)
		m.await(soon, func() bool { return m.plugins() == 0 }, "the device plugins end")
		third, fourth := m.startClaimed(cameras[0]), m.startClaimed(cameras[1])
		m.await(soon, func() bool { return m.running(third) && m.running(fourth) }, "Pods with claims run")
		require.Equal(t, 4, m.reserved())
		m.awaitLists()
		m.end(first)
		m.end(third)
		m.await(reclaim, func() bool { return m.reserved() == 2 }, "the slots of ended Pods are released")

		m.writer.SetResources(devicePlugin)
		m.await(soon, func() bool { return m.plugins() == len(cameras)+1 }, "the device plugins return")
		fifth := m.awaitAdmitted(random)
		require.Equal(t, 3, m.reserved())
		m.awaitLists()
		m.end(second)
		m.end(fourth)
		m.end(fifth)
		m.await(reclaim, func() bool { return m.reserved() == 0 }, "the slots of ended Pods are released")
		m.finish()
	})
}

// finish ends all Pods and requires that all slots become free.
func (m *machine) finish() {
	m.t.Helper()
	for len(m.pods) > 0 {
		m.end(m.pods[0])
	}
	var ended sync.WaitGroup
	for _, await := range m.claimed {
		ended.Go(await)
	}
	done := make(chan struct{})
	go func() { ended.Wait(); close(done) }()
	m.await(reclaim, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}, "Pods with claims end")
	m.await(reclaim, func() bool { return m.reserved() == 0 }, "all slots become free")
	m.checkFaults()
}

// Random changes of the form, restarts of each service, and Pods that start and end. The slot of a
// running Pod is never free, no resource has two device plugins at once, and after the walk the
// device plugins follow the form, and the slots of all ended Pods are free.
func TestRandomWalk(t *testing.T) {
	t.Parallel()
	const steps = 60
	inBoth(t, func(t *testing.T, m *machine) {
		seed := uint64(time.Now().UnixNano())
		t.Log("seed", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		form, wasDynamic := undecided, false
		for range steps {
			if m.writerStopped && random.IntN(3) == 0 {
				m.toggleWriter()
			}
			switch random.IntN(13) {
			case 0, 10:
				form = []instancev1.Resources{undecided, devicePlugin, devicePlugin, dra, dra}[random.IntN(5)]
				wasDynamic = wasDynamic || form == dra
				m.writer.SetResources(form)
			case 1, 2:
				p := m.processes[random.IntN(len(m.processes))]
				p.end([]syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[random.IntN(2)])
				<-time.After(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
				p.start()
			case 3:
				if !m.writerStopped {
					m.toggleWriter()
				}
			case 4, 5, 6:
				// An allocation waits for instance-writer for eight seconds.
				if m.writerStopped && random.IntN(4) > 0 {
					continue
				}
				if p := m.kubelet.admit(m.nextName(), random); p != nil {
					m.pods = append(m.pods, p)
				}
			case 7, 8, 9:
				if form == dra {
					m.startClaimed(cameras[random.IntN(len(cameras))])
				}
			default:
				if len(m.pods) > 0 {
					m.end(m.pods[random.IntN(len(m.pods))])
				}
			}
			if !wasDynamic {
				require.Zero(t, m.registrations())
			}
			m.checkFaults()
			<-time.After(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
		}

		t.Logf("%d Pods, of which %d with claims and %d run; %d registrations of the driver",
			m.count, len(m.claimed), len(m.pods), m.registrations())
		if m.writerStopped {
			m.toggleWriter()
		}
		m.writer.SetResources([]instancev1.Resources{devicePlugin, dra}[random.IntN(2)])
		m.finish()
		m.writer.SetResources(dra)
		m.await(soon, func() bool { return m.plugins() == 0 }, "the device plugins end")
		m.writer.SetResources(devicePlugin)
		m.await(soon, func() bool {
			ofCameras := slices.DeleteFunc(m.kubelet.offers(), func(offer [2]string) bool { return offer[0] == configuration })
			return len(ofCameras) == len(cameras)*slots
		}, "all slots are offered")
	})
}
