package onvif_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// address is one of the many that loopback has.
func address(number int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(number / 200), byte(number%200 + 1)}), 80)
}

func cameras(count int) []*onvif.Camera {
	made := make([]*onvif.Camera, count)
	for i := range made {
		made[i] = onvif.Make(i, address(i))
	}
	return made
}

func fleet(t *testing.T, conditions onvif.Conditions, cameras ...*onvif.Camera) *onvif.Fleet {
	t.Helper()
	conditions.Interface = "lo"
	f, err := onvif.Start(t.Context(), conditions)
	require.NoError(t, err)
	t.Cleanup(f.Stop)
	require.NoError(t, f.Plug(cameras...))
	return f
}

// handler runs handler-onvif and returns its gRPC client.
func handler(t *testing.T, flags ...string) discoveryv0.DiscoveryHandlerClient {
	t.Helper()
	_, client := process(t, flags...)
	return client
}

func process(t *testing.T, flags ...string) (*os.Process, discoveryv0.DiscoveryHandlerClient) {
	t.Helper()
	folder, err := os.MkdirTemp("", "o") //nolint:usetesting // the folders of t.TempDir have long names
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	command := exec.Command(os.Getenv(handlerVariable), append([]string{
		"--discovery-handlers-directory", folder, "--admin-address=" + adminAddress, "--interfaces=lo",
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
	soon := grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: time.Second}}
	conn, err := grpc.NewClient("unix://"+filepath.Join(folder, "onvif.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(soon))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return command.Process, discoveryv0.NewDiscoveryHandlerClient(conn)
}

const adminAddress = "127.0.0.1:9399"

type list map[string]map[string]string

// lists are what one Configuration gets.
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

// next returns devices by id; that none is there twice is checked on the way.
func (l lists) next(t *testing.T) list {
	t.Helper()
	response, err := l.stream.Recv()
	require.NoError(t, err)
	found := list{}
	for _, device := range response.GetDevices() {
		require.NotContains(t, found, device.GetId())
		found[device.GetId()] = device.GetProperties()
	}
	return found
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

func TestForeignClientUnderstandsTheCameras(t *testing.T) {
	for name, auth := range map[string]onvif.Auth{"no authentication": onvif.Open, "WS-Security": onvif.WSSecurity, "HTTP digest": onvif.HTTPDigest} {
		t.Run(name, func(t *testing.T) {
			all := cameras(3)
			for i, camera := range all {
				camera.Auth, camera.Username, camera.Password = auth, "ada", "secret"
				camera.ClockOffset = time.Duration(i) * time.Hour
			}
			fleet(t, onvif.Conditions{}, all...)
			check := func(password string) ([]byte, error) {
				command := exec.CommandContext(t.Context(), "node", filepath.Join("check", "check.js"), "3", "ada", password)
				command.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(os.Getenv(modulesVariable), "node_modules"))
				output, err := command.Output()
				if exit, ok := errors.AsType[*exec.ExitError](err); ok {
					err = fmt.Errorf("%w: %s", err, exit.Stderr)
				}
				return output, err
			}
			output, err := check("secret")
			require.NoError(t, err)
			var found []struct {
				URN, Serial, MAC string
				Time             int64
			}
			require.NoError(t, json.Unmarshal(output, &found), "%s", output)
			require.Len(t, found, 3)
			for _, camera := range found {
				var number int
				_, err := fmt.Sscanf(camera.URN[len(camera.URN)-12:], "%x", &number)
				require.NoError(t, err)
				require.Equal(t, all[number].MAC, camera.MAC)
				require.Equal(t, all[number].MAC, camera.Serial)
				require.WithinDuration(t, time.Now().Add(all[number].ClockOffset), time.UnixMilli(camera.Time), 5*time.Second)
			}
			if auth != onvif.Open {
				_, err = check("wrong")
				require.ErrorContains(t, err, map[onvif.Auth]string{onvif.WSSecurity: "not Authorized", onvif.HTTPDigest: "Digest authentication failed"}[auth])
			}
		})
	}
}

func TestHundredsOfCamerasAreFoundOnce(t *testing.T) {
	for name, test := range map[string]struct {
		conditions onvif.Conditions
		shuffle    func([]*onvif.Camera)
	}{
		"a good network": {conditions: onvif.Conditions{Delay: 500 * time.Millisecond}},
		"5 % loss":       {conditions: onvif.Conditions{Loss: .05, Delay: 500 * time.Millisecond, Seed: 1}},
		"each of one type only": {shuffle: func(all []*onvif.Camera) {
			for i, camera := range all {
				camera.Types = []string{[]string{"NetworkVideoTransmitter", "Device"}[i%2]}
			}
		}},
		"several addresses each": {shuffle: func(all []*onvif.Camera) {
			for i, camera := range all {
				camera.MoreAddresses = []netip.AddrPort{netip.AddrPortFrom(address(i).Addr(), 8080)}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			all := cameras(300)
			if test.shuffle != nil {
				test.shuffle(all)
			}
			fleet(t, test.conditions, all...)
			client := handler(t)
			began := time.Now()
			found := discover(t, client, "", nil).next(t)
			t.Logf("%d cameras after %s", len(found), time.Since(began))
			requireAll(t, all, found)
		})
	}
}

func TestHostileRepliesHarmNothing(t *testing.T) {
	all := cameras(50)
	f := fleet(t, onvif.Conditions{}, all...)
	client := handler(t)
	stranger := netip.MustParseAddr("127.9.9.9")
	stream := discover(t, client, "discoveryTimeoutSeconds: 2", nil)
	require.Eventually(t, func() bool { return f.Probes() > 0 }, 10*time.Second, time.Millisecond, "who probes listens, too")
	for i := range 20 {
		for name, datagram := range onvif.Datagrams() {
			require.NoError(t, f.Say(stranger, datagram), "%s %d", name, i)
		}
	}
	port, services := uint16(1000), onvif.Services()
	asked := make(chan string, 1000)
	for name, service := range services {
		stop, err := f.Impostor("impostor-"+name, netip.AddrPortFrom(stranger, port), told(asked, name, service))
		require.NoError(t, err)
		t.Cleanup(stop)
		port++
	}
	stolen := *all[0]
	stolen.Address = netip.AddrPortFrom(stranger, 1000) // someone else says that this camera is there now
	require.NoError(t, f.Hello(&stolen))
	requireAll(t, all, stream.next(t))
	require.NoError(t, f.Hello(&stolen))
	requireAll(t, all, discover(t, client, "", nil).next(t))

	close(asked)
	for name := range asked {
		delete(services, name)
	}
	require.Empty(t, services, "who was never asked did no harm")
	metrics := metrics(t)
	for _, name := range []string{"malformed", "ignored"} {
		require.NotContains(t, metrics, fmt.Sprintf("akri_onvif_datagrams_total{result=%q} 0\n", name))
	}
}

// told says when a service is asked, until asked is full.
func told(asked chan<- string, name string, service http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- name:
		default:
		}
		service.ServeHTTP(w, r)
	})
}

func metrics(t *testing.T) string {
	t.Helper()
	answer, err := http.Get("http://" + adminAddress + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(text)
}

// The next probe and the next check are an hour away: only what cameras say themselves can change anything.
func TestHelloAndByeAreFollowed(t *testing.T) {
	all := cameras(3)
	f := fleet(t, onvif.Conditions{}, all[:2]...)
	stream := discover(t, handler(t, "--interval=1h"), "", nil)
	requireAll(t, all[:2], stream.next(t))

	require.NoError(t, f.Plug(all[2]))
	require.NoError(t, f.Hello(all[2]))
	requireAll(t, all, stream.next(t))

	require.NoError(t, f.Bye(all[0])) // someone lies: it is still there
	f.Unplug(all[2])
	require.NoError(t, f.Bye(all[2]))
	requireAll(t, all[:2], stream.next(t))
}

func TestCamerasLeaveAndComeBackWithoutAWord(t *testing.T) {
	all := cameras(2)
	f := fleet(t, onvif.Conditions{}, all...)
	stream := discover(t, handler(t, "--interval=1s"), "", nil)
	requireAll(t, all, stream.next(t))
	f.Unplug(all[1])
	requireAll(t, all[:1], stream.next(t))
	require.NoError(t, f.Plug(all[1]))
	requireAll(t, all, stream.next(t))
}

func TestCredentialsAndTheirRotation(t *testing.T) {
	all := cameras(4)
	for i, camera := range all {
		camera.Auth = []onvif.Auth{onvif.WSSecurity, onvif.HTTPDigest}[i%2]
		camera.Username, camera.Password = "ada", "first"
	}
	all[2].ClockOffset, all[3].ClockOffset = -90*time.Minute, 400*24*time.Hour
	f := fleet(t, onvif.Conditions{}, all...)
	client := handler(t)
	filtered := `macAddresses: {action: Exclude, items: ["02:ff:ff:ff:ff:ff"]}` // who tells no MAC does not pass
	credentials := map[string]string{"username_default": "ada", "password_default": "first"}
	require.Empty(t, discover(t, client, filtered, nil).next(t))
	bare := discover(t, client, "", nil).next(t)
	require.Len(t, bare, 4)
	require.NotContains(t, bare[id(all[0])], "ONVIF_DEVICE_MAC_ADDRESS")
	requireAll(t, all, discover(t, client, filtered, credentials).next(t))

	f.Unplug(all...)
	for _, camera := range all {
		camera.Password = "second"
	}
	require.NoError(t, f.Plug(all...))
	require.Empty(t, discover(t, client, filtered, credentials).next(t))
	credentials["password_default"] = "second"
	requireAll(t, all, discover(t, client, filtered, credentials).next(t))

	credentials["password_default"] = "wrong"
	own := fmt.Sprintf(`{%q: {"username": "ada", "password": "c2Vjb25k", "base64encoded": true}}`, strings.ToUpper(all[1].UUID))
	credentials["device_credential_list"], credentials["list"] = `["list"]`, own
	requireAll(t, all[1:2], discover(t, client, filtered, credentials).next(t))
}

func TestFiltersAndAdditions(t *testing.T) {
	all := cameras(3)
	fleet(t, onvif.Conditions{}, all...)
	client := handler(t)
	for details, want := range map[string][]*onvif.Camera{
		"uuids: {items: ['" + strings.ToUpper(all[1].UUID) + "']}":                  all[1:2],
		"scopes: {action: Include, items: ['" + all[0].Scopes[1] + "']}":            all[:1],
		"scopes: {action: Exclude, items: ['" + all[0].Scopes[1] + "']}":            all[1:],
		"ipAddresses: {items: ['" + all[2].Address.Addr().String() + "']}":          all[2:],
		"macAddresses: {action: Exclude, items: ['" + all[0].MAC + "']}":            all[1:],
		"macAddresses: {action: Include, items: []}":                                nil,
		"uuids: {action: Exclude, items: []}\nscopes: {items: [], action: Exclude}": all,
	} {
		requireAll(t, want, discover(t, client, details, nil).next(t))
	}
	found := discover(t, client, "identity: uuid\ndeviceInformation: true", nil).next(t)
	require.Len(t, found, 3)
	require.Equal(t, "Simulated", found[all[0].UUID]["ONVIF_DEVICE_MODEL"])
	require.Equal(t, all[0].MAC, found[all[0].UUID]["ONVIF_DEVICE_SERIAL_NUMBER"])
}

func TestIdentityByUUIDSurvivesAChangeOfAddress(t *testing.T) {
	camera := onvif.Make(0, address(0))
	f := fleet(t, onvif.Conditions{}, camera)
	stream := discover(t, handler(t, "--interval=2s"), "identity: uuid", nil)
	require.Equal(t, camera.URL(), stream.next(t)[camera.UUID]["ONVIF_DEVICE_SERVICE_URL"])
	moved := *camera
	moved.Address = address(1)
	f.Unplug(camera)
	require.NoError(t, f.Plug(&moved))
	require.NoError(t, f.Hello(&moved))
	require.Equal(t, moved.URL(), stream.next(t)[camera.UUID]["ONVIF_DEVICE_SERVICE_URL"], "no list lacks it meanwhile")
}
