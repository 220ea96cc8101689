package onvif_test

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"akri.sh/integration/devices/onvif"
	discoveryv0 "akri.sh/proto/v0"
)

// address returns one of the addresses of loopback.
func address(number int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(number / 200), byte(number%200 + 1)}), 80)
}

func cameras(count int) []*onvif.Camera {
	all := make([]*onvif.Camera, count)
	for i := range all {
		all[i] = onvif.Make(i, address(i))
	}
	return all
}

func fleet(t *testing.T, conditions onvif.Conditions, cameras ...*onvif.Camera) *onvif.Fleet {
	t.Helper()
	conditions.Interface = "lo"
	f, err := onvif.Start(t.Context(), conditions)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Stop()) })
	require.NoError(t, f.Plug(cameras...))
	return f
}

// handler runs handler-onvif until the test ends and returns a client of it.
func handler(t *testing.T, flags ...string) discoveryv0.DiscoveryHandlerClient {
	t.Helper()
	_, client := process(t, flags...)
	return client
}

func process(t *testing.T, flags ...string) (*os.Process, discoveryv0.DiscoveryHandlerClient) {
	t.Helper()
	directory, err := os.MkdirTemp("", "o") //nolint:usetesting // paths of t.TempDir are too long for sockets
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	command := exec.Command(os.Getenv(handlerVariable), append([]string{
		"--discovery-handlers-directory", directory, "--admin-address=" + adminAddress, "--interfaces=lo",
	}, flags...)...)
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := command.Wait(); err != nil || t.Failed() {
			t.Log(output.String())
		}
		require.NotContains(t, output.String(), "DATA RACE")
	})
	connect := grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: time.Second}}
	conn, err := grpc.NewClient("unix://"+filepath.Join(directory, "onvif.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(connect))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return command.Process, discoveryv0.NewDiscoveryHandlerClient(conn)
}

const adminAddress = "127.0.0.1:9399"

// list has the properties of devices by id.
type list map[string]map[string]string

// lists receives the lists of one Discover stream.
type lists struct {
	stream grpc.ServerStreamingClient[discoveryv0.DiscoverResponse]
}

func discover(t *testing.T, client discoveryv0.DiscoveryHandlerClient, details string, properties map[string]string) lists {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	request := &discoveryv0.DiscoverRequest{DiscoveryDetails: details, DiscoveryProperties: map[string]*discoveryv0.ByteData{}}
	for name, value := range properties {
		request.DiscoveryProperties[name] = &discoveryv0.ByteData{Vec: []byte(value)}
	}
	stream, err := client.Discover(ctx, request)
	require.NoError(t, err)
	return lists{stream}
}

// next returns the next list.
func (l lists) next(t *testing.T) list {
	t.Helper()
	response, err := l.stream.Recv()
	require.NoError(t, err)
	devices := list{}
	for _, device := range response.GetDevices() {
		require.NotContains(t, devices, device.GetId(), "duplicate device")
		devices[device.GetId()] = device.GetProperties()
	}
	return devices
}

func id(camera *onvif.Camera) string { return camera.URL() + "-" + camera.UUID }

func requireAll(t *testing.T, cameras []*onvif.Camera, found list) {
	t.Helper()
	require.Len(t, found, len(cameras))
	for _, camera := range cameras {
		require.Equal(t, map[string]string{
			"ONVIF_DEVICE_SERVICE_URL": camera.URL(), "ONVIF_DEVICE_UUID": camera.UUID,
			"ONVIF_DEVICE_IP_ADDRESS": camera.Address.Addr().String(), "ONVIF_DEVICE_MAC_ADDRESS": camera.MAC,
		}, found[id(camera)])
	}
}

func metrics(t *testing.T) string {
	t.Helper()
	response, err := http.Get("http://" + adminAddress + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(text)
}
