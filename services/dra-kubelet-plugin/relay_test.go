package drakubeletplugin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpchealth "google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"akri.sh/libs/node/instancetest"
	instancev1 "akri.sh/proto/akri/instance/v1"
	drakubeletplugin "akri.sh/services/dra-kubelet-plugin"
	"akri.sh/services/dra-kubelet-plugin/relay"
)

// pluginProcess is a plugin in a process of its own, which can be killed.
type pluginProcess struct {
	t       *testing.T
	config  drakubeletplugin.Config
	command *exec.Cmd
}

func (p *pluginProcess) start() {
	p.t.Helper()
	p.command = exec.Command(os.Args[0], "--node-name="+p.config.NodeName, "--pod="+p.config.Pod, "--socket="+p.config.Socket,
		"--cdi-dir="+p.config.CDIDir, "--kubelet-dir="+p.config.KubeletDir, "--pod-resources="+p.config.PodResources,
		"--discovery-operator="+p.config.DiscoveryOperator, "--instance-writer="+p.config.InstanceWriter, "--admin-address=")
	p.command.Env = append(os.Environ(), "BE_THE_SERVICE=1", "GORACE=atexit_sleep_ms=0")
	require.NoError(p.t, p.command.Start())
}

func (p *pluginProcess) signal(signal syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.command.Process.Signal(signal))
}

// stop returns when no thread of the process runs any more.
func (p *pluginProcess) stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	_, err := syscall.Wait4(p.command.Process.Pid, nil, syscall.WUNTRACED, nil)
	require.NoError(p.t, err)
}

func (p *pluginProcess) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	require.Error(p.t, p.command.Wait())
}

// startKillable starts a relay and its plugin in a process until the end of the test, and returns a
// connection to the relay.
func startKillable(t *testing.T, writer *instancetest.Writer) (*pluginProcess, *grpc.ClientConn) {
	t.Helper()
	plugin := &pluginProcess{t: t, config: newConfig(t, writer)}
	plugin.start()
	t.Cleanup(plugin.kill)
	run(t, relay.New, relayTo(plugin.config))
	conn := dial(t, relayTo(plugin.config), "akri.sh-plugin.sock")
	_, err := registrationv1.NewRegistrationClient(conn).GetInfo(t.Context(), &registrationv1.InfoRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return plugin, conn
}

func putClaim(writer *instancetest.Writer, uid string) *drav1.Claim {
	writer.PutClaim("default", uid, uid, &instancev1.AllocatedDevice{Request: "r", Pool: "default/" + camera, Device: camera})
	return &drav1.Claim{Namespace: "default", Name: uid, Uid: uid}
}

// kubeletCalls are the calls of a kubelet for claims.
type kubeletCalls struct{ drav1.DRAPluginClient }

// kubeletTimeout is the deadline of the kubelet's calls.
const kubeletTimeout = 45 * time.Second

func (k kubeletCalls) prepare(ctx context.Context, claim *drav1.Claim) error {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	response, err := k.NodePrepareResources(ctx, &drav1.NodePrepareResourcesRequest{Claims: []*drav1.Claim{claim}})
	if err != nil {
		return err
	}
	if result := response.GetClaims()[claim.GetUid()]; result.GetError() != "" || len(result.GetDevices()) != 1 {
		return fmt.Errorf("prepared %v", response)
	}
	return nil
}

func (k kubeletCalls) unprepare(ctx context.Context, claim *drav1.Claim) error {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	response, err := k.NodeUnprepareResources(ctx, &drav1.NodeUnprepareResourcesRequest{Claims: []*drav1.Claim{claim}})
	if err != nil {
		return err
	}
	if result := response.GetClaims()[claim.GetUid()]; result == nil || result.GetError() != "" {
		return fmt.Errorf("unprepared %v", response)
	}
	return nil
}

// The plugin is killed or terminated at random moments while claims are prepared and unprepared. No
// call fails, and after each the claim has the file, or none. A release that a killed plugin has
// sent can arrive after the next preparation: the next plugin then takes the slot back.
func TestKilledPlugin(t *testing.T) {
	const claims, kills = 4, 12
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	writer := instancetest.New()
	writer.PutDevice("camera", camera, "cameras", claims, "")
	plugin, conn := startKillable(t, writer)
	kubelet := kubeletCalls{drav1.NewDRAPluginClient(conn)}

	holds := func(claim *drav1.Claim) func() bool {
		return func() bool { return slices.Contains(writer.Usage(camera), "D:"+claim.GetUid()+":node-a") }
	}

	var ended atomic.Bool
	var calls atomic.Int64
	var slowest atomic.Int64
	var group sync.WaitGroup
	for i := range claims {
		claim := putClaim(writer, fmt.Sprint("uid-", i))
		file := filepath.Join(plugin.config.CDIDir, "akri.sh-claim_"+claim.GetUid()+".json")
		group.Go(func() {
			for !ended.Load() {
				started := time.Now()
				if !assert.NoError(t, kubelet.prepare(t.Context(), claim)) || !assert.FileExists(t, file) ||
					!assert.Eventually(t, holds(claim), time.Minute, time.Millisecond, "the slot is not reserved") ||
					!assert.NoError(t, kubelet.unprepare(t.Context(), claim)) || !assert.NoFileExists(t, file) {
					return
				}
				calls.Add(2)
				slowest.Store(max(slowest.Load(), int64(time.Since(started))))
			}
		})
	}
	for range kills {
		<-time.After(time.Duration(random.Int64N(int64(800 * time.Millisecond))))
		plugin.signal([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[random.IntN(2)])
		_ = plugin.command.Wait() // an error if it does not catch SIGTERM yet
		<-time.After(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
		plugin.start()
	}
	ended.Store(true)
	group.Wait()
	t.Logf("%d calls, the slowest pair took %s", calls.Load(), time.Duration(slowest.Load()))
	require.GreaterOrEqual(t, calls.Load(), int64(2*claims))
	require.Eventually(t, func() bool { return fmt.Sprint(writer.Usage(camera)) == fmt.Sprint(make([]string, claims)) }, time.Minute, 10*time.Millisecond)
}

// The plugin gets SIGTERM while a preparation waits for a slot. It ends before that is finished:
// the preparation is sent to the plugin that starts next.
func TestTerminatedPlugin(t *testing.T) {
	writer := newWriter("node-b")
	claim := putClaim(writer, "uid")
	plugin, conn := startKillable(t, writer)
	kubelet := kubeletCalls{drav1.NewDRAPluginClient(conn)}
	prepared := make(chan error, 1)
	go func() { prepared <- kubelet.prepare(t.Context(), claim) }()
	require.Eventually(t, func() bool { return writer.Reads() > 0 }, time.Minute, 10*time.Millisecond)

	ended := make(chan error, 1)
	plugin.signal(syscall.SIGTERM)
	go func() { ended <- plugin.command.Wait() }()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(20 * time.Second): // half of the time that the preparation waits
		require.FailNow(t, "the plugin does not end")
	}
	require.Empty(t, prepared)

	plugin.start()
	writer.PutDevice("camera", camera, "cameras", 1, "")
	require.NoError(t, <-prepared)
	require.Equal(t, []string{"D:uid:node-a"}, writer.Usage(camera))
}

// A call to a plugin that hangs ends with its deadline.
func TestHungPlugin(t *testing.T) {
	writer := newWriter("")
	claim := putClaim(writer, "uid")
	plugin, conn := startKillable(t, writer)
	kubelet := kubeletCalls{drav1.NewDRAPluginClient(conn)}
	plugin.stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.Equal(t, codes.DeadlineExceeded, status.Code(kubelet.prepare(ctx, claim)))
	plugin.signal(syscall.SIGCONT)
	require.NoError(t, kubelet.prepare(t.Context(), claim))
}

// A claim is unprepared while its preparation waits for the plugin, which does not run. The
// preparation does not happen later.
func TestUnpreparedWithoutPlugin(t *testing.T) {
	writer := newWriter("")
	claim := putClaim(writer, "uid")
	plugin, conn := startKillable(t, writer)
	kubelet := kubeletCalls{drav1.NewDRAPluginClient(conn)}
	plugin.stop() // its connections stay open
	prepared, unprepared := make(chan error, 1), make(chan error, 1)
	go func() { prepared <- kubelet.prepare(t.Context(), claim) }()
	require.Never(t, func() bool { return len(prepared) > 0 }, 200*time.Millisecond, 10*time.Millisecond)
	plugin.kill()
	go func() { unprepared <- kubelet.unprepare(t.Context(), claim) }()
	require.Equal(t, codes.Aborted, status.Code(<-prepared))
	plugin.start()
	require.NoError(t, <-unprepared)
	require.NoError(t, kubelet.unprepare(t.Context(), claim))
	require.Equal(t, []string{""}, writer.Usage(camera))
	require.NoFileExists(t, filepath.Join(plugin.config.CDIDir, "akri.sh-claim_uid.json"))
}

// The health stream ends with the plugin, and the next one waits for the plugin.
func TestHealthStreamOfKilledPlugin(t *testing.T) {
	plugin, conn := startKillable(t, newWriter(""))
	watch := func() grpc.ServerStreamingClient[drahealthv1.NodeWatchResourcesResponse] {
		stream, err := drahealthv1.NewDRAResourceHealthClient(conn).NodeWatchResources(t.Context(), &drahealthv1.NodeWatchResourcesRequest{})
		require.NoError(t, err)
		return stream
	}
	receive := func(stream grpc.ServerStreamingClient[drahealthv1.NodeWatchResourcesResponse]) {
		for _, want := range []drahealthv1.HealthStatus{drahealthv1.HealthStatus_UNKNOWN, drahealthv1.HealthStatus_HEALTHY} {
			response, err := stream.Recv()
			require.NoError(t, err)
			require.Equal(t, want, response.GetDevices()[0].GetHealth())
		}
	}
	first := watch()
	receive(first)
	plugin.kill()
	_, err := first.Recv()
	require.Error(t, err)
	second := watch()
	plugin.start()
	receive(second)
}

// Connections to the plugin break in the middle of answers. Each call has a whole answer.
func TestBrokenConnections(t *testing.T) {
	config := newConfig(t, newWriter(""))
	run(t, drakubeletplugin.New, config)
	broken := relayTo(config)
	broken.Plugin = config.Socket + "p"
	connections := breakConnections(t, broken.Plugin, config.Socket)
	run(t, relay.New, broken)
	client := registrationv1.NewRegistrationClient(dial(t, broken, "akri.sh-plugin.sock"))
	for connections.Load() < 40 {
		info, err := client.GetInfo(t.Context(), &registrationv1.InfoRequest{}, grpc.WaitForReady(true))
		require.NoError(t, err)
		require.Equal(t, "akri.sh", info.GetName())
		require.Len(t, info.GetSupportedVersions(), 3)
	}
}

// A plugin closes its connection after it has sent the answer of a call and before its status. The
// kubelet gets the answer, and only one.
func TestAnswerWithoutStatus(t *testing.T) {
	config := newConfig(t, newWriter(""))
	answered := make(chan struct{})
	plugin := grpc.NewServer(grpc.ForceServerCodecV2(encoding.GetCodecV2("proto")), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.SendMsg(&registrationv1.PluginInfo{Name: "akri.sh"}); err != nil {
			return err
		}
		close(answered)
		<-stream.Context().Done()
		return nil
	}))
	health := grpchealth.NewServer()
	health.SetServingStatus(relay.Registration, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(plugin, health)
	listener, err := net.Listen("unix", config.Socket[len("unix://"):])
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = plugin.Serve(listener) })
	t.Cleanup(serving.Wait)
	run(t, relay.New, relayTo(config))
	client := registrationv1.NewRegistrationClient(dial(t, relayTo(config), "akri.sh-plugin.sock"))

	var info *registrationv1.PluginInfo
	var infoErr error
	var calling sync.WaitGroup
	calling.Go(func() {
		info, infoErr = client.GetInfo(t.Context(), &registrationv1.InfoRequest{}, grpc.WaitForReady(true))
	})
	<-answered
	serving.Go(plugin.GracefulStop)
	require.Eventually(t, func() bool {
		_, err := os.Lstat(listener.Addr().String())
		return errors.Is(err, fs.ErrNotExist)
	}, time.Minute, 10*time.Millisecond)
	run(t, drakubeletplugin.New, config)
	calling.Wait()
	require.NoError(t, infoErr)
	require.Empty(t, info.GetSupportedVersions(), "the answer of the next plugin")
}

// breakConnections forwards connections to another socket, and breaks each after another number of
// bytes from the plugin. It returns the number of connections.
func breakConnections(t *testing.T, at, to string) *atomic.Int64 {
	t.Helper()
	const unix = len("unix://")
	listener, err := net.Listen("unix", at[unix:])
	require.NoError(t, err)
	var group sync.WaitGroup
	var accepted atomic.Int64
	t.Cleanup(func() { _ = listener.Close(); group.Wait() })
	group.Go(func() {
		for {
			relay, err := listener.Accept()
			if err != nil {
				return
			}
			bytes := 40 + 13*accepted.Add(1)
			group.Go(func() { breakAfter(relay, to[unix:], bytes) })
		}
	})
	return &accepted
}

// breakAfter forwards a connection until the plugin has sent some bytes.
func breakAfter(relay net.Conn, to string, bytes int64) {
	defer relay.Close()
	plugin, err := net.Dial("unix", to)
	if err != nil {
		return
	}
	defer plugin.Close()
	go func() { _, _ = io.Copy(plugin, relay) }()
	_, _ = io.CopyN(relay, plugin, bytes)
}
