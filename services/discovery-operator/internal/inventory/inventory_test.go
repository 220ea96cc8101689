package inventory_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/grace"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/inventory"
)

func configuration() *configurationv1.Configuration {
	return &configurationv1.Configuration{
		Namespace: "default", Name: "cameras", Uid: "uid-1", Handler: "foo", Request: &configurationv1.DiscoveryRequest{},
	}
}

func source(endpoint string, shared bool, ids ...string) inventory.Source {
	s := inventory.Source{Handler: &registrarv1.Handler{Name: "foo", Endpoint: endpoint, Shared: shared}, Answered: true}
	for _, id := range ids {
		s.Devices = append(s.Devices, &discoveryv0.Device{Id: id, Properties: map[string]string{"FROM": endpoint}})
	}
	return s
}

func newInput(sources ...inventory.Source) inventory.Input {
	return inventory.Input{Node: "node-a", Configuration: configuration(), Sources: sources, HandlersSynced: true}
}

func reasons(entry *inventory.Entry) []string {
	var all []string
	for _, problem := range entry.Report.GetProblems() {
		all = append(all, problem.GetReason())
	}
	return all
}

// names returns the short names of Instances by device id.
func names(entry *inventory.Entry) map[string]string {
	all := map[string]string{}
	for _, device := range entry.Report.GetDevices() {
		all[device.GetId()] = device.GetInstance()
	}
	return all
}

func TestInstanceNames(t *testing.T) {
	entry := inventory.Build(newInput(source("/b", false, "x"), source("/a", true, "foo1")))
	require.Equal(t, map[string]string{
		"foo1": "cameras-" + akriv0.Digest("foo1", "", true),
		"x":    "cameras-" + akriv0.Digest("x", "node-a", false),
	}, names(entry))
	require.True(t, entry.Report.GetComplete())
	require.Equal(t, "uid-1", entry.Report.GetConfigurationUid())
	require.Empty(t, entry.Report.GetProblems())
}

// Finding 6: of a device at two endpoints, the first registration counts, then the name. When its
// endpoint no longer has the device, the next endpoint offers it.
func TestDeviceAtTwoEndpoints(t *testing.T) {
	from := func(sources ...inventory.Source) map[string]string {
		from := map[string]string{}
		for _, device := range inventory.Build(newInput(sources...)).Report.GetDevices() {
			from[device.GetId()] = device.GetProperties()["FROM"]
		}
		return from
	}
	first, second := source("/b", true, "x"), source("/a", true, "x", "y")
	for range 5 {
		require.Equal(t, map[string]string{"x": "/a", "y": "/a"}, from(first, second), "of an earlier registrar")
	}
	first.Handler.Order, second.Handler.Order = 1, 2
	require.Equal(t, map[string]string{"x": "/b", "y": "/a"}, from(second, first))
	first.Devices = nil
	require.Equal(t, map[string]string{"x": "/a", "y": "/a"}, from(second, first))
}

func TestBrokerPropertiesReplaceHandlerProperties(t *testing.T) {
	input := newInput(source("/a", true, "x"))
	input.Configuration.Request.BrokerProperties = map[string]string{"FROM": "user", "MORE": "1"}
	entry := inventory.Build(input)
	want := map[string]string{"FROM": "user", "MORE": "1"}
	require.Equal(t, want, entry.Report.GetDevices()[0].GetProperties())
	require.Equal(t, "/a", input.Sources[0].Devices[0].GetProperties()["FROM"], "the list of the handler is not changed")
}

func TestHostPathDefaultsToContainerPath(t *testing.T) {
	s := source("/a", false)
	s.Devices = []*discoveryv0.Device{{
		Id: "x", Mounts: []*discoveryv0.Mount{{ContainerPath: "/m", ReadOnly: true}},
		DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/dev/a"}, {ContainerPath: "/dev/b", HostPath: "/dev/c", Permissions: "r"}},
	}}
	device := inventory.Build(newInput(s)).Report.GetDevices()[0]
	require.Equal(t, "/m", device.GetMounts()[0].GetHostPath())
	require.True(t, device.GetMounts()[0].GetReadOnly())
	require.Equal(t, "/dev/a", device.GetDeviceNodes()[0].GetHostPath())
	require.Equal(t, "rw", device.GetDeviceNodes()[0].GetPermissions(), "finding 5: not m")
	require.Equal(t, "/dev/c", device.GetDeviceNodes()[1].GetHostPath())
	require.Equal(t, "r", device.GetDeviceNodes()[1].GetPermissions())
}

func TestComplete(t *testing.T) {
	unanswered := source("/unanswered", true)
	unanswered.Answered = false
	for name, c := range map[string]struct {
		input inventory.Input
		want  bool
	}{
		"all handlers answered":             {newInput(source("/a", true), source("/b", true)), true},
		"one handler did not answer":        {newInput(source("/a", true), unanswered), false},
		"no handler within the grace":       {inventory.Input{Configuration: configuration(), HandlersSynced: true, Unregistered: &grace.Wait{}}, false},
		"no handler after the grace":        {inventory.Input{Configuration: configuration(), HandlersSynced: true}, true},
		"handlers not synced":               {inventory.Input{Configuration: configuration()}, false},
		"handler answered within the grace": {inventory.Input{Configuration: configuration(), HandlersSynced: true, Unregistered: &grace.Wait{}, Sources: []inventory.Source{source("/a", true)}}, true},
	} {
		require.Equal(t, c.want, inventory.Build(c.input).Report.GetComplete(), name)
	}
}

func TestHandlerNotRegistered(t *testing.T) {
	input := newInput()
	input.Registered = []string{"udev", "debugEcho", "udev"}
	entry := inventory.Build(input)
	require.Equal(t, []string{akriv0.ReasonHandlerNotRegistered}, reasons(entry))
	require.Equal(t, `no Discovery Handler named "foo" is registered on node "node-a"; registered: debugEcho, udev`,
		entry.Report.GetProblems()[0].GetMessage())
	input.Registered = nil
	require.True(t, strings.HasSuffix(inventory.Build(input).Report.GetProblems()[0].GetMessage(), "registered: none"))
	require.Nil(t, entry.Report.GetProblems()[0].GetWait(), "its devices are gone")
	wait := inventory.HandlerWait("the Discovery Handler registers", time.Unix(1e9, 0), time.Minute)
	input.Unregistered = &wait
	require.Equal(t, &instancev1.Wait{
		Awaited: "the Discovery Handler registers", Then: "its devices are removed",
		Since: &timestamppb.Timestamp{Seconds: 1e9}, Until: &timestamppb.Timestamp{Seconds: 1e9 + 60},
	}, inventory.Build(input).Report.GetProblems()[0].GetWait())
	input.Configuration.Handler = "opcua"
	require.True(t, strings.HasSuffix(inventory.Build(input).Report.GetProblems()[0].GetMessage(), "registered: none"),
		"a node cannot see whether the handler is enabled")
}

func TestOfflineHandlerKeepsItsDevices(t *testing.T) {
	s := source("/a", true, "x")
	s.Handler.Status = registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE
	s.Handler.OfflineSince = &timestamppb.Timestamp{Seconds: 1e9}
	input := newInput(s)
	input.Grace = 5 * time.Minute
	entry := inventory.Build(input)
	require.Equal(t, []string{akriv0.ReasonHandlerOffline}, reasons(entry))
	require.Equal(t, `Discovery Handler "foo" at /a on node "node-a" cannot be reached; check that it is running; `+
		"its devices are removed when it has been offline for 5m", entry.Report.GetProblems()[0].GetMessage())
	require.Equal(t, &instancev1.Wait{
		Awaited: "the Discovery Handler can be reached", Then: "its devices are removed",
		Since: s.Handler.GetOfflineSince(), Until: &timestamppb.Timestamp{Seconds: 1e9 + 300},
	}, entry.Report.GetProblems()[0].GetWait())
	require.Len(t, entry.Report.GetDevices(), 1)
	require.True(t, entry.Report.GetComplete())
	require.Equal(t, "Offline", entry.Report.GetHandlers()[0].GetStatus())
}

func TestHandlerWithoutSocketKeepsItsDevices(t *testing.T) {
	s := source("/a", true, "x")
	s.Handler.Status = registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE
	s.Handler.OfflineCause = registrarv1.OfflineCause_OFFLINE_CAUSE_SOCKET_MISSING
	s.Handler.OfflineSince = &timestamppb.Timestamp{Seconds: 1e9}
	input := newInput(s)
	input.Grace = 5 * time.Minute
	entry := inventory.Build(input)
	require.Equal(t, []string{akriv0.ReasonHandlerSocketMissing}, reasons(entry))
	problem := entry.Report.GetProblems()[0]
	require.Equal(t, `the socket /a of Discovery Handler "foo" does not exist; restart the Pod of the handler, which creates it again; `+
		"when the handler has been offline for 5m, its devices are removed, unless it still sends them on a connection that is open",
		problem.GetMessage())
	require.Equal(t, []string{"/a"}, problem.GetEvidence())
	require.Equal(t, &timestamppb.Timestamp{Seconds: 1e9 + 300}, problem.GetWait().GetUntil())
	require.Len(t, entry.Report.GetDevices(), 1)
	require.True(t, entry.Report.GetComplete())
}

// colliding returns two ids with one digest. A digest has 24 bits, so some thousand ids are enough.
func colliding() (first, second string) {
	seen := map[string]string{}
	for i := 0; ; i++ {
		id := "camera-" + strconv.Itoa(i)
		digest := akriv0.Digest(id, "", true)
		if other, taken := seen[digest]; taken {
			return min(id, other), max(id, other)
		}
		seen[digest] = id
	}
}

// Devices with one digest are reported with the same short name. instance-writer gives one of them
// a longer name.
func TestDigestCollision(t *testing.T) {
	first, second := colliding()
	entry := inventory.Build(newInput(source("/a", true, second, first, "other")))
	short := akriv0.InstanceName("cameras", akriv0.Digest(first, "", true))
	require.Equal(t, map[string]string{first: short, second: short, "other": "cameras-" + akriv0.Digest("other", "", true)}, names(entry))
	require.Len(t, entry.Report.GetDevices(), 3)
	require.Empty(t, entry.Report.GetProblems())
}

// An invalid device does not affect the other devices of its list.
func TestInvalidDevices(t *testing.T) {
	many := map[string]string{}
	for i := range 65 {
		many["K"+strconv.Itoa(i)] = ""
	}
	for want, bad := range map[string]*discoveryv0.Device{
		"a device with an empty id":                    {},
		"must be at most 1024 bytes":                   {Id: strings.Repeat("x", 1025)},
		"must be UTF-8 without control characters":     {Id: "a\x00b"},
		"65 properties: must be at most 64":            {Id: "x", Properties: many},
		`property "1X": must be the name`:              {Id: "x", Properties: map[string]string{"1X": ""}},
		`property "A=B": must be the name`:             {Id: "x", Properties: map[string]string{"A=B": ""}},
		`property "": must be the name`:                {Id: "x", Properties: map[string]string{"": ""}},
		"must be at most 4096 bytes":                   {Id: "x", Properties: map[string]string{"K": strings.Repeat("x", 4096)}},
		"the value must be UTF-8 without NUL":          {Id: "x", Properties: map[string]string{"K": "\x00"}},
		`mount "m" on host path ""`:                    {Id: "x", Mounts: []*discoveryv0.Mount{{ContainerPath: "m"}}},
		`device node "/d" on host path`:                {Id: "x", DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/d", HostPath: "d"}}},
		`permissions "rx": must be letters`:            {Id: "x", DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/dev/d", Permissions: "rx"}}},
		"65 mounts and device nodes: must be at most ": {Id: "x", Mounts: make([]*discoveryv0.Mount, 65)},
	} {
		devices, problems := validate(inventory.Policy{}, &discoveryv0.Device{Id: "good", Properties: map[string]string{"USB_RESOURCE_A-B.c": "1"}}, bad)
		require.Len(t, devices, 1, want)
		require.Equal(t, "good", devices[0].GetId())
		require.Len(t, problems, 1, want)
		require.Equal(t, akriv0.ReasonInvalidDevice, problems[0].GetReason())
		require.Contains(t, problems[0].GetMessage(), `Discovery Handler "foo" at /run/foo.sock sent `)
		require.Contains(t, problems[0].GetMessage(), want)
	}
}

// validate validates a list of the handler "foo".
func validate(policy inventory.Policy, list ...*discoveryv0.Device) ([]*discoveryv0.Device, []*instancev1.Problem) {
	policy.MaxDevices = cmp.Or(policy.MaxDevices, 1000)
	return inventory.Validate(policy, inventory.List{Handler: "foo", Endpoint: "/run/foo.sock", Devices: list})
}

// Finding 10: a handler or a device cannot fill the cluster with devices, and cannot replace the
// devices that are in use.
func TestLimits(t *testing.T) {
	var list []*discoveryv0.Device
	for i := range 105 {
		list = append(list, &discoveryv0.Device{Id: fmt.Sprintf("d-%03d", i)})
	}
	slices.Reverse(list)
	policy := inventory.Policy{MaxDevices: 100}
	devices, problems := validate(policy, append(slices.Clone(list), list[0])...)
	require.Len(t, devices, 100)
	require.Equal(t, "d-000", devices[0].GetId(), "the order of the list does not matter")
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].GetMessage(), "105 devices: 5 are refused, because --max-devices is 100")

	forged := slices.Clone(list)
	for i := range 50 {
		forged = append(forged, &discoveryv0.Device{Id: fmt.Sprintf("a-%03d", i)})
	}
	kept, problems := inventory.Validate(policy, inventory.List{Handler: "foo", Endpoint: "/x", Devices: forged, Previous: devices})
	require.Equal(t, devices, kept)
	require.Contains(t, problems[0].GetMessage(), "155 devices: 55 are refused")

	_, problems = validate(inventory.Policy{}, make([]*discoveryv0.Device, 500)...)
	require.Len(t, problems, 11)
	require.Contains(t, problems[10].GetMessage(), "490 more invalid devices")
}

// The order of endpoints and devices does not matter.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-f]{1,2}`), 0, 8, rapid.ID[string])
		var sources []inventory.Source
		for i := range rapid.IntRange(1, 4).Draw(t, "endpoints") {
			sources = append(sources, source("/"+strconv.Itoa(i), rapid.Bool().Draw(t, "shared"), ids.Draw(t, "ids")...))
		}
		want := inventory.Build(newInput(slices.Clone(sources)...))
		shuffled := rapid.Permutation(sources).Draw(t, "shuffled")
		for i := range shuffled {
			shuffled[i].Devices = rapid.Permutation(shuffled[i].Devices).Draw(t, "devices")
		}
		got := inventory.Build(newInput(shuffled...))
		require.True(t, proto.Equal(want.Report, got.Report))
		require.Len(t, names(got), len(got.Report.GetDevices()), "a device is reported once")
	})
}

func TestNameTaken(t *testing.T) {
	taken := configuration()
	taken.NameTaken = true
	entry := inventory.BuildWithoutDevices(taken)
	require.True(t, entry.Report.GetComplete())
	require.Empty(t, entry.Report.GetDevices())
	require.Equal(t, []string{akriv0.ReasonNameTaken}, reasons(entry))
}

// A report is answered if each handler has sent a list or has found no device so far. It is
// complete if each has sent a list.
func TestAnswered(t *testing.T) {
	list, silent, starting := source("/a", true, "x"), source("/b", true), source("/c", true)
	silent.Answered, silent.Silent, starting.Answered = false, true, false
	for name, c := range map[string]struct {
		input              inventory.Input
		answered, complete bool
	}{
		"list":                {newInput(list), true, true},
		"silent":              {newInput(silent), true, false},
		"silent and list":     {newInput(list, silent), true, false},
		"silent and starting": {newInput(silent, starting), false, false},
		"no handler":          {newInput(), true, true},
		"no handler in grace": {inventory.Input{Configuration: configuration(), HandlersSynced: true, Unregistered: &grace.Wait{}}, false, false},
		"table unknown":       {inventory.Input{Configuration: configuration(), Sources: []inventory.Source{silent}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			report := inventory.Build(c.input).Report
			require.Equal(t, c.answered, report.GetAnswered())
			require.Equal(t, c.complete, report.GetComplete())
		})
	}
}
