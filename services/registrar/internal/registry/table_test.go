package registry_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	registrarv1 "akri.sh/proto/akri/registrar/v1"
	"akri.sh/services/registrar/internal/registry"
)

const keep = 5 * time.Minute

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	udev  = registry.Key{Name: "udev", Endpoint: "/var/lib/akri/udev.sock"}
)

func onlyHandler(t *testing.T, table *registry.Table) registry.Handler {
	t.Helper()
	list := table.List()
	require.Len(t, list, 1)
	return list[0]
}

func report(key registry.Key, registration uint64, status registrarv1.HandlerStatus) *registrarv1.HandlerReport {
	return &registrarv1.HandlerReport{Name: key.Name, Endpoint: key.Endpoint, Registration: registration, Status: status}
}

// A handler waits, becomes active, goes offline and is removed.
func TestHandlerLifecycle(t *testing.T) {
	table := registry.NewTable(keep, start, nil)
	require.NoError(t, table.Register(udev, false, false))
	require.Equal(t, registry.Handler{Key: udev, Status: registry.Waiting, Registration: 1, Order: 1}, onlyHandler(t, table))

	require.True(t, table.Report(report(udev, 1, registry.Active), start))
	require.False(t, table.Report(report(udev, 1, registry.Active), start), "a repeated report changes nothing")
	require.True(t, table.Report(report(udev, 1, registry.Offline), start.Add(time.Second)))
	require.False(t, table.Report(report(udev, 1, registry.Offline), start.Add(time.Minute)), "only the first report sets the time")
	require.Equal(t, start.Add(time.Second), onlyHandler(t, table).OfflineSince)

	next, offline := table.NextExpiry()
	require.True(t, offline)
	require.Equal(t, start.Add(time.Second+keep), next)
	require.Empty(t, table.Expire(next.Add(-1)))
	require.Equal(t, []registry.Key{udev}, table.Expire(next))
	require.Empty(t, table.List())
}

// The cause of Offline can change without a change of the time, survives a restart, and ends with
// Offline.
func TestOfflineCause(t *testing.T) {
	table := registry.NewTable(keep, start, nil)
	require.NoError(t, table.Register(udev, false, false))
	missing := report(udev, 1, registry.Offline)
	missing.OfflineCause = registry.SocketMissing
	require.True(t, table.Report(report(udev, 1, registry.Offline), start))
	require.True(t, table.Report(missing, start.Add(time.Second)))
	require.False(t, table.Report(missing, start.Add(time.Second)))
	offline := onlyHandler(t, table)
	require.Equal(t, registry.SocketMissing, offline.OfflineCause)
	require.Equal(t, start, offline.OfflineSince)

	file := filepath.Join(t.TempDir(), "state.json")
	require.NoError(t, registry.Save(file, table.List()))
	saved, err := registry.Load(file)
	require.NoError(t, err)
	require.Equal(t, []registry.Handler{offline}, saved)

	active := report(udev, 1, registry.Active)
	active.OfflineCause = registry.SocketMissing
	require.True(t, table.Report(active, start))
	require.Zero(t, onlyHandler(t, table).OfflineCause)
	require.True(t, table.Report(missing, start))
	require.NoError(t, table.Register(udev, false, false))
	require.Zero(t, onlyHandler(t, table).OfflineCause)
}

// Registering again ends Offline and keeps Active.
func TestRegisterAgain(t *testing.T) {
	table := registry.NewTable(keep, start, nil)
	require.NoError(t, table.Register(udev, false, false))
	table.Report(report(udev, 1, registry.Active), start)
	require.NoError(t, table.Register(udev, false, true))
	require.Equal(t, registry.Handler{Key: udev, Shared: true, Status: registry.Active, Registration: 2, Order: 1}, onlyHandler(t, table))

	require.False(t, table.Report(report(udev, 1, registry.Offline), start), "a report about an older registration is ignored")
	require.True(t, table.Report(report(udev, 2, registry.Offline), start))
	require.NoError(t, table.Register(udev, false, true))
	require.Equal(t, registry.Handler{Key: udev, Shared: true, Status: registry.Waiting, Registration: 3, Order: 1}, onlyHandler(t, table))
}

// After a restart, offline handlers are kept for the whole time again.
func TestRestartRestartsExpiry(t *testing.T) {
	offline := registry.Handler{Key: udev, Status: registry.Offline, OfflineSince: start, Registration: 4}
	restarted := start.Add(time.Hour)
	table := registry.NewTable(keep, restarted, []registry.Handler{offline})
	require.Empty(t, table.Expire(restarted.Add(keep-1)))
	require.Equal(t, offline, onlyHandler(t, table))
	require.Len(t, table.Expire(restarted.Add(keep)), 1)
}

// Finding 6: the order of first registrations survives registering again and a restart. A handler
// that was removed is the last when it returns.
func TestOrder(t *testing.T) {
	second := registry.Key{Name: "udev", Endpoint: "/a.sock"}
	table := registry.NewTable(keep, start, nil)
	for _, key := range []registry.Key{udev, second, udev} {
		require.NoError(t, table.Register(key, false, false))
	}
	file := filepath.Join(t.TempDir(), "state.json")
	require.NoError(t, registry.Save(file, table.List()))
	saved, err := registry.Load(file)
	require.NoError(t, err)
	table = registry.NewTable(keep, start, saved)
	orders := func() map[string]uint64 {
		orders := map[string]uint64{}
		for _, handler := range table.List() {
			orders[handler.Endpoint] = handler.Order
		}
		return orders
	}
	require.Equal(t, map[string]uint64{udev.Endpoint: 1, "/a.sock": 2}, orders())

	require.True(t, table.Report(report(udev, 2, registry.Offline), start))
	require.Len(t, table.Expire(start.Add(keep)), 1)
	require.NoError(t, table.Register(udev, false, false))
	require.Equal(t, map[string]uint64{udev.Endpoint: 3, "/a.sock": 2}, orders())
}

func TestTableIsBounded(t *testing.T) {
	table := registry.NewTable(keep, start, nil)
	for i := range registry.MaxHandlers {
		require.NoError(t, table.Register(registry.Key{Name: "n", Endpoint: "/" + strconv.Itoa(i)}, false, false))
	}
	require.ErrorIs(t, table.Register(udev, false, false), registry.ErrFull)
	require.NoError(t, table.Register(registry.Key{Name: "n", Endpoint: "/7"}, false, false), "a registered endpoint may register again")
}

func TestNormalizeEndpoint(t *testing.T) {
	path, hostPort := registry.NormalizePath, registry.NormalizeHostPort
	for _, c := range []struct {
		normalize func(string) (string, error)
		in, want  string // want is empty: an error
	}{
		{path, "/var/lib/akri/udev.sock", "/var/lib/akri/udev.sock"},
		{path, "unix:///var/lib/akri//udev.sock", "/var/lib/akri/udev.sock"},
		{path, "/elsewhere/x.sock", "/elsewhere/x.sock"},
		{path, "/" + strings.Repeat("x", 106), "/" + strings.Repeat("x", 106)},
		{path, "/" + strings.Repeat("x", 107), ""},
		{path, "udev.sock", ""},
		{path, "", ""},
		{path, "/", ""},
		{path, "/a\x00b", ""},
		{path, "http://10.0.0.1:1", ""},
		{hostPort, "10.0.0.7:10000", "10.0.0.7:10000"},
		{hostPort, "http://10.0.0.7:10000", "10.0.0.7:10000"},
		{hostPort, "http://camera.local:80/", "camera.local:80"},
		{hostPort, "http://[fd00::1]:10000", "[fd00::1]:10000"},
		{hostPort, "https://10.0.0.7:10000", ""},
		{hostPort, "10.0.0.7", ""},
		{hostPort, "10.0.0.7:0", ""},
		{hostPort, "10.0.0.7:65536", ""},
		{hostPort, ":10000", ""},
		{hostPort, "a b:1", ""},
		{hostPort, "/var/lib/akri/udev.sock", ""},
	} {
		got, err := c.normalize(c.in)
		require.Equal(t, c.want, got, c.in)
		if c.want == "" {
			require.ErrorContains(t, err, "must be ", c.in)
		} else {
			require.NoError(t, err, c.in)
		}
	}
}

func FuzzNormalizeIsIdempotent(f *testing.F) {
	f.Add("/var/lib/akri/udev.sock")
	f.Add("http://10.0.0.7:10000")
	f.Fuzz(func(t *testing.T, endpoint string) {
		for _, normalize := range []func(string) (string, error){registry.NormalizePath, registry.NormalizeHostPort} {
			if once, err := normalize(endpoint); err == nil {
				twice, err := normalize(once)
				require.NoError(t, err)
				require.Equal(t, once, twice)
			}
		}
	})
}

func TestValidateName(t *testing.T) {
	for _, good := range []string{"udev", "debugEcho", "acme.io/my_handler-2"} {
		require.NoError(t, registry.ValidateName(good), good)
	}
	for _, bad := range []string{"", "-x", "a b", "a\nb", "ü", strings.Repeat("x", 128)} {
		require.ErrorContains(t, registry.ValidateName(bad), "must be 1 to 127", bad)
	}
}

func TestSaveAndLoadState(t *testing.T) {
	file := filepath.Join(t.TempDir(), "created", "state.json")
	missing, err := registry.Load(file)
	require.NoError(t, err)
	require.Empty(t, missing)

	want := []registry.Handler{
		{Key: registry.Key{Name: "onvif", Endpoint: "10.0.0.7:10000"}, Network: true, Shared: true, Status: registry.Active, Registration: 9},
		{Key: udev, Status: registry.Offline, OfflineSince: start, Registration: 2},
	}
	require.NoError(t, registry.Save(file, want))
	got, err := registry.Load(file)
	require.NoError(t, err)
	require.Equal(t, want, got)

}

func TestLoadCorruptState(t *testing.T) {
	for name, text := range map[string]string{
		"empty":             "",
		"no JSON":           "{",
		"relative endpoint": `{"handlers":[{"name":"x","endpoint":"rel","status":"Active"}]}`,
		"unknown status":    `{"handlers":[{"name":"x","endpoint":"/x","status":"?"}]}`,
		"invalid name":      `{"handlers":[{"name":"-x","endpoint":"/x","status":"Active"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "state.json")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			_, err := registry.Load(file)
			require.ErrorIs(t, err, registry.ErrCorrupt)
			require.NoFileExists(t, file)
			require.FileExists(t, file+".corrupt")
		})
	}
}

// The file is from a release; its format must stay readable.
func TestLoadStateOfOlderVersion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"handlers":[`+
		`{"name":"onvif","endpoint":"10.0.0.7:10000","network":true,"shared":true,"status":"Active","registration":9},`+
		`{"name":"udev","endpoint":"/var/lib/akri/udev.sock","status":"Offline","offlineSince":"2026-01-01T00:00:00Z","registration":2},`+
		`{"name":"x","endpoint":"/x","status":"Waiting","registration":1}]}`), 0o600))
	handlers, err := registry.Load(file)
	require.NoError(t, err)
	require.Equal(t, []registry.Handler{
		{Key: registry.Key{Name: "onvif", Endpoint: "10.0.0.7:10000"}, Network: true, Shared: true, Status: registry.Active, Registration: 9},
		{Key: udev, Status: registry.Offline, OfflineSince: start, Registration: 2},
		{Key: registry.Key{Name: "x", Endpoint: "/x"}, Status: registry.Waiting, Registration: 1},
	}, handlers)
}

func TestTableInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, now := registry.NewTable(keep, start, nil), start
		highest := map[registry.Key]uint64{}
		keys := rapid.Custom(func(t *rapid.T) registry.Key {
			return registry.Key{Name: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"), Endpoint: rapid.SampledFrom([]string{"/1", "/2"}).Draw(t, "endpoint")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				require.NoError(t, table.Register(key, false, false))
				highest[key]++
			},
			"report": func(t *rapid.T) {
				status := rapid.SampledFrom([]registrarv1.HandlerStatus{registry.Waiting, registry.Active, registry.Offline}).Draw(t, "status")
				cause := rapid.SampledFrom([]registrarv1.OfflineCause{0, registry.SocketMissing}).Draw(t, "cause")
				message := report(keys.Draw(t, "key"), rapid.Uint64Range(0, 3).Draw(t, "registration"), status)
				message.OfflineCause = cause
				table.Report(message, now)
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
				for _, key := range table.Expire(now) {
					delete(highest, key)
				}
			},
			"": func(t *rapid.T) {
				for _, handler := range table.List() {
					require.Equal(t, highest[handler.Key], handler.Registration)
					require.Equal(t, handler.Status == registry.Offline, !handler.OfflineSince.IsZero())
					require.True(t, handler.Status == registry.Offline || handler.OfflineCause == 0)
				}
				require.Len(t, table.List(), len(highest))
				if next, offline := table.NextExpiry(); offline {
					require.False(t, next.After(now.Add(keep)))
				}
			},
		})
	})
}
