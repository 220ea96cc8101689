package inventory_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/inventory"
)

func configuration() *akriv0.Configuration {
	return &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cameras", UID: "uid-1"},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{Name: "foo"}},
	}
}

func source(endpoint string, shared bool, ids ...string) inventory.Source {
	s := inventory.Source{Handler: &registrarv1.Handler{Name: "foo", Endpoint: endpoint, Shared: shared}, Heard: true}
	for _, id := range ids {
		s.Devices = append(s.Devices, &discoveryv0.Device{Id: id, Properties: map[string]string{"FROM": endpoint}})
	}
	return s
}

func facts(sources ...inventory.Source) inventory.Facts {
	return inventory.Facts{Node: "node-a", Configuration: configuration(), Sources: sources, HandlersKnown: true}
}

func reasons(view inventory.View) []string {
	var all []string
	for _, problem := range view.Report.GetProblems() {
		all = append(all, problem.GetReason())
	}
	return all
}

func TestDevicesAreNamedAsAkriNamesThem(t *testing.T) {
	view := inventory.Build(facts(source("/b", false, "x"), source("/a", true, "foo1")))
	require.Equal(t, map[string]string{
		"cameras-" + akriv0.Digest("foo1", "", true):     "foo1",
		"cameras-" + akriv0.Digest("x", "node-a", false): "x",
	}, view.Names())
	require.True(t, view.Report.GetComplete())
	require.Equal(t, "uid-1", view.Report.GetConfigurationUid())
	require.Empty(t, view.Report.GetProblems())
}

func TestOneIdFromTwoEndpointsIsOneDeviceOfTheFirst(t *testing.T) {
	for range 5 {
		view := inventory.Build(facts(source("/b", true, "x"), source("/a", true, "x", "y")))
		require.Len(t, view.Report.GetDevices(), 2)
		for _, device := range view.Report.GetDevices() {
			require.Equal(t, "/a", device.GetProperties()["FROM"])
		}
	}
}

func TestBrokerPropertiesOverlayThoseOfTheHandler(t *testing.T) {
	f := facts(source("/a", true, "x"))
	f.Configuration.Spec.BrokerProperties = map[string]string{"FROM": "user", "MORE": "1"}
	view := inventory.Build(f)
	want := map[string]string{"FROM": "user", "MORE": "1"}
	require.Equal(t, want, view.Report.GetDevices()[0].GetProperties())
	require.Equal(t, want, view.Inventory.GetDevices()[0].GetProperties())
	require.Equal(t, "/a", f.Sources[0].Devices[0].GetProperties()["FROM"], "what the handler sent is left alone")
}

func TestPathsDefaultToThoseOfTheContainer(t *testing.T) {
	s := source("/a", false)
	s.Devices = []*discoveryv0.Device{{
		Id: "x", Mounts: []*discoveryv0.Mount{{ContainerPath: "/m", ReadOnly: true}},
		DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/dev/a"}, {ContainerPath: "/dev/b", HostPath: "/dev/c", Permissions: "r"}},
	}}
	device := inventory.Build(facts(s)).Inventory.GetDevices()[0]
	require.Equal(t, "/m", device.GetMounts()[0].GetHostPath())
	require.True(t, device.GetMounts()[0].GetReadOnly())
	require.Equal(t, "/dev/a", device.GetDeviceNodes()[0].GetHostPath())
	require.Equal(t, "rwm", device.GetDeviceNodes()[0].GetPermissions())
	require.Equal(t, "/dev/c", device.GetDeviceNodes()[1].GetHostPath())
	require.Equal(t, "r", device.GetDeviceNodes()[1].GetPermissions())
}

func TestAListIsCompleteWhenAllHaveBeenHeardOrNobodyIsLeftToHear(t *testing.T) {
	silent := source("/silent", true)
	silent.Heard = false
	for name, c := range map[string]struct {
		facts inventory.Facts
		want  bool
	}{
		"all heard":                {facts(source("/a", true), source("/b", true)), true},
		"one silent":               {facts(source("/a", true), silent), false},
		"no handler, early":        {inventory.Facts{Configuration: configuration(), HandlersKnown: true, Early: true}, false},
		"no handler for long":      {inventory.Facts{Configuration: configuration(), HandlersKnown: true}, true},
		"registrar not heard":      {inventory.Facts{Configuration: configuration()}, false},
		"early with heard handler": {inventory.Facts{Configuration: configuration(), HandlersKnown: true, Early: true, Sources: []inventory.Source{source("/a", true)}}, true},
	} {
		require.Equal(t, c.want, inventory.Build(c.facts).Report.GetComplete(), name)
	}
}

func TestAnUnknownHandlerIsAProblemThatNamesTheKnownOnes(t *testing.T) {
	f := facts()
	f.Registered = []string{"udev", "debugEcho", "udev"}
	view := inventory.Build(f)
	require.Equal(t, []string{akriv0.ReasonHandlerNotRegistered}, reasons(view))
	require.Equal(t, `no Discovery Handler named "foo" is registered on node "node-a"; registered: debugEcho, udev`,
		view.Report.GetProblems()[0].GetMessage())
	f.Registered = nil
	require.True(t, strings.HasSuffix(inventory.Build(f).Report.GetProblems()[0].GetMessage(), "registered: none"))
}

func TestAnOfflineHandlerIsAProblemAndKeepsItsDevices(t *testing.T) {
	s := source("/a", true, "x")
	s.Handler.Status = registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE
	view := inventory.Build(facts(s))
	require.Equal(t, []string{akriv0.ReasonHandlerOffline}, reasons(view))
	require.Len(t, view.Report.GetDevices(), 1)
	require.True(t, view.Report.GetComplete())
	require.Equal(t, "Offline", view.Report.GetHandlers()[0].GetStatus())
}

// colliding finds two ids of one digest: with 24 bits some thousands do.
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

func TestOfTwoIdsWithOneDigestOneIsOfferedAndTheOtherIsAProblem(t *testing.T) {
	first, second := colliding()
	f := facts(source("/a", true, second, first, "other"))
	view := inventory.Build(f)
	require.Len(t, view.Names(), 2, "the third device is not affected")
	instance := akriv0.InstanceName("cameras", akriv0.Digest(first, "", true))
	require.Equal(t, first, view.Names()[instance], "the first by id")
	require.Equal(t, []string{akriv0.ReasonDigestCollision}, reasons(view))
	require.Contains(t, view.Report.GetProblems()[0].GetMessage(), fmt.Sprintf("device ids %q and %q", first, second))

	f.Former = map[string]string{instance: second}
	view = inventory.Build(f)
	require.Equal(t, second, view.Names()[instance], "that which had the name keeps it")
	require.Contains(t, view.Report.GetProblems()[0].GetMessage(), fmt.Sprintf("%q is offered, %q is not", second, first))
}

func TestOnlyTheDeviceThatIsWrongIsDropped(t *testing.T) {
	many := map[string]string{}
	for i := range 65 {
		many["K"+strconv.Itoa(i)] = ""
	}
	for want, bad := range map[string]*discoveryv0.Device{
		"a device with an empty id":       {},
		"at most 1024 are allowed":        {Id: strings.Repeat("x", 1025)},
		"must not contain NUL":            {Id: "a\x00b"},
		"65 properties: at most 64":       {Id: "x", Properties: many},
		`property "1X": want the name`:    {Id: "x", Properties: map[string]string{"1X": ""}},
		`property "A=B": want the name`:   {Id: "x", Properties: map[string]string{"A=B": ""}},
		`property "": want the name`:      {Id: "x", Properties: map[string]string{"": ""}},
		"at most 4096 are allowed":        {Id: "x", Properties: map[string]string{"K": strings.Repeat("x", 4096)}},
		"its value must not contain NUL":  {Id: "x", Properties: map[string]string{"K": "\x00"}},
		`mount "m" on host path ""`:       {Id: "x", Mounts: []*discoveryv0.Mount{{ContainerPath: "m"}}},
		`device node "/d" on host path`:   {Id: "x", DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/d", HostPath: "d"}}},
		`permissions "rx": want letters`:  {Id: "x", DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/d", Permissions: "rx"}}},
		"65 mounts and device nodes: at ": {Id: "x", Mounts: make([]*discoveryv0.Mount, 65)},
	} {
		devices, problems := inventory.Check(inventory.Allow{}, "foo", "/run/foo.sock", []*discoveryv0.Device{{Id: "good", Properties: map[string]string{"USB_RESOURCE_A-B.c": "1"}}, bad})
		require.Len(t, devices, 1, want)
		require.Equal(t, "good", devices[0].GetId())
		require.Len(t, problems, 1, want)
		require.Equal(t, akriv0.ReasonInvalidDevice, problems[0].GetReason())
		require.Contains(t, problems[0].GetMessage(), `Discovery Handler "foo" at /run/foo.sock sent `)
		require.Contains(t, problems[0].GetMessage(), want)
	}
}

func TestAHandlerThatSendsTooMuchIsBounded(t *testing.T) {
	var list []*discoveryv0.Device
	for i := range inventory.MaxDevices + 5 {
		list = append(list, &discoveryv0.Device{Id: fmt.Sprintf("d-%05d", i)})
	}
	slices.Reverse(list)
	devices, problems := inventory.Check(inventory.Allow{}, "foo", "/x", append(list, list[0]))
	require.Len(t, devices, inventory.MaxDevices)
	require.Equal(t, "d-00000", devices[0].GetId(), "which are kept does not hang on the order")
	require.Len(t, problems, 1)
	require.Contains(t, problems[0].GetMessage(), "10005 devices, at most 10000 are taken")

	_, problems = inventory.Check(inventory.Allow{}, "foo", "/x", make([]*discoveryv0.Device, 500))
	require.Len(t, problems, 11)
	require.Contains(t, problems[10].GetMessage(), "and 490 more")
}

func TestTheOrderOfEndpointsAndDevicesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-f]{1,2}`), 0, 8, rapid.ID[string])
		var sources []inventory.Source
		for i := range rapid.IntRange(1, 4).Draw(t, "endpoints") {
			sources = append(sources, source("/"+strconv.Itoa(i), rapid.Bool().Draw(t, "shared"), ids.Draw(t, "ids")...))
		}
		want := inventory.Build(facts(slices.Clone(sources)...))
		shuffled := rapid.Permutation(sources).Draw(t, "shuffled")
		for i := range shuffled {
			shuffled[i].Devices = rapid.Permutation(shuffled[i].Devices).Draw(t, "devices")
		}
		got := inventory.Build(facts(shuffled...))
		require.True(t, proto.Equal(want.Report, got.Report))
		require.True(t, proto.Equal(want.Inventory, got.Inventory))
		names := map[string]bool{}
		for _, device := range got.Report.GetDevices() {
			require.False(t, names[device.GetInstance()], "one name, one device")
			names[device.GetInstance()] = true
		}
	})
}

func TestTheYoungerOfOneNameIsToldWhoHasIt(t *testing.T) {
	owner := configuration()
	owner.Namespace = "elsewhere"
	view := inventory.Taken(configuration(), owner)
	require.True(t, view.Report.GetComplete())
	require.Equal(t, []*instancev1.Problem{{
		Reason:  akriv0.ReasonNameTaken,
		Message: "the older Configuration elsewhere/cameras has the same name; resources of the kubelet have no namespace, so choose another name for this one",
	}}, view.Report.GetProblems())
}
