package onvif_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/devices/onvif"
)

func TestIndependentClientUnderstandsSimulation(t *testing.T) {
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

func TestHundredsOfCameras(t *testing.T) {
	for name, test := range map[string]struct {
		conditions onvif.Conditions
		change     func([]*onvif.Camera)
	}{
		"no loss":  {conditions: onvif.Conditions{Delay: 500 * time.Millisecond}},
		"5 % loss": {conditions: onvif.Conditions{Loss: .05, Delay: 500 * time.Millisecond, Seed: 1}},
		"one type each": {change: func(all []*onvif.Camera) {
			for i, camera := range all {
				camera.Types = []string{[]string{"NetworkVideoTransmitter", "Device"}[i%2]}
			}
		}},
		"several addresses each": {change: func(all []*onvif.Camera) {
			for i, camera := range all {
				camera.MoreAddresses = []netip.AddrPort{netip.AddrPortFrom(address(i).Addr(), 8080)}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			all := cameras(300)
			if test.change != nil {
				test.change(all)
			}
			fleet(t, test.conditions, all...)
			client := handler(t)
			requireAll(t, all, discover(t, client, "", nil).next(t))
		})
	}
}

func TestHostileDevicesDoNoHarm(t *testing.T) {
	all := cameras(50)
	f := fleet(t, onvif.Conditions{}, all...)
	client := handler(t)
	attacker := netip.MustParseAddr("127.9.9.9")
	stream := discover(t, client, "discoveryTimeoutSeconds: 2", nil)
	require.Eventually(t, func() bool { return f.Probes() > 0 }, 10*time.Second, time.Millisecond, "the handler listens after its first probe")
	for i := range 20 {
		for name, datagram := range onvif.Datagrams() {
			require.NoError(t, f.Send(attacker, datagram), "%s %d", name, i)
		}
	}
	port, services := uint16(1000), onvif.Services()
	called := make(chan string, 1000)
	for name, service := range services {
		stop, err := f.Serve("hostile-"+name, netip.AddrPortFrom(attacker, port), notifying(called, name, service))
		require.NoError(t, err)
		t.Cleanup(stop)
		port++
	}
	forged := *all[0]
	forged.Address = netip.AddrPortFrom(attacker, 1000)
	require.NoError(t, f.Hello(&forged))
	requireAll(t, all, stream.next(t))
	require.NoError(t, f.Hello(&forged))
	requireAll(t, all, discover(t, client, "", nil).next(t))

	close(called)
	for name := range called {
		delete(services, name)
	}
	require.Empty(t, services, "the handler must call all services")
	metrics := metrics(t)
	for _, name := range []string{"malformed", "ignored"} {
		require.NotContains(t, metrics, fmt.Sprintf("akri_onvif_datagrams_total{result=%q} 0\n", name))
	}
}

// notifying sends the name for each call of the service, until the channel is full.
func notifying(called chan<- string, name string, service http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case called <- name:
		default:
		}
		service.ServeHTTP(w, r)
	})
}

// With an interval of an hour, only messages of cameras cause changes.
func TestHelloAndByeChangeTheList(t *testing.T) {
	all := cameras(3)
	f := fleet(t, onvif.Conditions{}, all[:2]...)
	stream := discover(t, handler(t, "--interval=1h"), "", nil)
	requireAll(t, all[:2], stream.next(t))

	require.NoError(t, f.Plug(all[2]))
	require.NoError(t, f.Hello(all[2]))
	requireAll(t, all, stream.next(t))

	require.NoError(t, f.Bye(all[0])) // forged
	f.Unplug(all[2])
	require.NoError(t, f.Bye(all[2]))
	requireAll(t, all[:2], stream.next(t))
}

func TestCamerasDisappearWithoutBye(t *testing.T) {
	all := cameras(2)
	f := fleet(t, onvif.Conditions{}, all...)
	stream := discover(t, handler(t, "--interval=1s"), "", nil)
	requireAll(t, all, stream.next(t))
	f.Unplug(all[1])
	requireAll(t, all[:1], stream.next(t))
	require.NoError(t, f.Plug(all[1]))
	requireAll(t, all, stream.next(t))
}

func TestCredentialsAndRotation(t *testing.T) {
	all := cameras(4)
	for i, camera := range all {
		camera.Auth = []onvif.Auth{onvif.WSSecurity, onvif.HTTPDigest}[i%2]
		camera.Username, camera.Password = "ada", "first"
	}
	all[2].ClockOffset, all[3].ClockOffset = -90*time.Minute, 400*24*time.Hour
	f := fleet(t, onvif.Conditions{}, all...)
	client := handler(t)
	filtered := `macAddresses: {action: Exclude, items: ["02:ff:ff:ff:ff:ff"]}` // matches only cameras that report a MAC
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

func TestFiltersAndDeviceInformation(t *testing.T) {
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

func TestIdentityByUUIDSurvivesNewAddress(t *testing.T) {
	camera := onvif.Make(0, address(0))
	f := fleet(t, onvif.Conditions{}, camera)
	stream := discover(t, handler(t, "--interval=2s"), "identity: uuid", nil)
	require.Equal(t, camera.URL(), stream.next(t)[camera.UUID]["ONVIF_DEVICE_SERVICE_URL"])
	moved := *camera
	moved.Address = address(1)
	f.Unplug(camera)
	require.NoError(t, f.Plug(&moved))
	require.NoError(t, f.Hello(&moved))
	require.Equal(t, moved.URL(), stream.next(t)[camera.UUID]["ONVIF_DEVICE_SERVICE_URL"], "no list in between lacks the camera")
}
