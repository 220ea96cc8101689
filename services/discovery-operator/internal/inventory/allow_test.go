package inventory_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"akri.sh/libs/catalog"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/inventory"
)

// classes are the classes of the device nodes of a node. Devices of the class "refused" are refused
// to all handlers.
type classes map[string]string

func (classes) IsDisk(string) bool { return false }

func (c classes) Class(path string) (string, error) {
	if class, found := c[path]; found {
		return class, nil
	}
	return "", errors.New("which is not a device")
}

func (c classes) Check(path string) error {
	if class, err := c.Class(path); err != nil || class == "refused" {
		return errors.New("which gives control of the node")
	}
	return nil
}

// accepts returns whether discovery-operator accepts a device of a handler, and the problem.
func accepts(policy inventory.Policy, handler, details string, device *discoveryv0.Device, nodes classes) (bool, string) {
	policy.MaxDevices = 1
	devices, problems := inventory.Validate(policy, inventory.List{
		Handler: handler, Endpoint: "/x", Details: details, Devices: []*discoveryv0.Device{device},
	})
	sources := []inventory.Source{{Handler: &registrarv1.Handler{Name: handler, Endpoint: "/x"}, Devices: devices, Problems: problems}}
	policy.CheckDeviceNodes(sources, nodes)
	if len(sources[0].Problems) > 0 {
		return len(sources[0].Devices) > 0, sources[0].Problems[0].GetMessage()
	}
	return len(sources[0].Devices) > 0, ""
}

// declared are the allow lists of the handlers of this project, and that of a handler without one.
var declared = map[string]catalog.Allow{
	"udev":      {DeviceClasses: []string{"*"}, PropertyPrefixes: []string{"UDEV_", "USB_RESOURCE_", "PCI_RESOURCE_"}},
	"debugEcho": {DeviceClasses: []string{}, PropertyPrefixes: []string{"DEBUG_ECHO_"}},
	"onvif":     {DeviceClasses: []string{}, PropertyPrefixes: []string{"ONVIF_"}},
	"opcua":     {DeviceClasses: []string{}, PropertyPrefixes: []string{"OPCUA_"}},
	"lamp":      {},
}

// A device is accepted if the list of its handler contains what it has and nothing else refuses it.
// Settings replace a list, and allow nothing that is refused otherwise.
func TestAllowLists(t *testing.T) {
	nodes := classes{
		"/dev/ttyUSB0": "ttyUSB", "/dev/video0": "video4linux", "/dev/sda": "block", "/dev/bus/usb/001/001": "usb", "/dev/mem": "refused",
	}
	anyClass := rapid.SampledFrom([]string{"ttyUSB", "video4linux", "block", "usb", "refused", "tpm", "*"})
	anyPrefix := rapid.SampledFrom([]string{"UDEV_", "ONVIF_", "LAMP_", "L", "LD_", "*"})
	anyName := rapid.SampledFrom([]string{
		"UDEV_DEVNODE", "USB_RESOURCE_X", "ONVIF_DEVICE_UUID", "OPCUA_DISCOVERY_URL", "DEBUG_ECHO_DESCRIPTION", "LAMP_ID", "SERIAL", "LD_PRELOAD", "udev_x",
	})
	optional := func(t *rapid.T, label string, items *rapid.Generator[string]) []string {
		if rapid.Bool().Draw(t, label+" set") {
			return rapid.SliceOfN(items, 0, 3).Draw(t, label)
		}
		return nil
	}
	rapid.Check(t, func(t *rapid.T) {
		handler := rapid.SampledFrom(slices.Sorted(maps.Keys(declared))).Draw(t, "handler")
		settings := catalog.Allow{DeviceClasses: optional(t, "classes", anyClass), PropertyPrefixes: optional(t, "prefixes", anyPrefix)}
		name, inDetails := anyName.Draw(t, "name"), rapid.Bool().Draw(t, "in details")
		path := rapid.SampledFrom(append(slices.Sorted(maps.Keys(nodes)), "/dev/link", "")).Draw(t, "path")

		device := &discoveryv0.Device{Id: "x", Properties: map[string]string{name: "1"}}
		if path != "" {
			device.DeviceSpecs = []*discoveryv0.DeviceSpec{{ContainerPath: path}}
		}
		details := "properties: {MY_" + name + ": x}"
		if inDetails {
			details = "properties: {" + name + ": x}"
		}
		policy := inventory.Policy{AllowFromHandlers: inventory.AllowLists{handler: settings}}
		got, problem := accepts(policy, handler, details, device, nodes)

		list := declared[handler]
		if settings.DeviceClasses != nil {
			list.DeviceClasses = settings.DeviceClasses
		}
		if settings.PropertyPrefixes != nil {
			list.PropertyPrefixes = settings.PropertyPrefixes
		}
		nameListed := list.PropertyPrefixes == nil || slices.Contains(list.PropertyPrefixes, "*") || inDetails ||
			slices.ContainsFunc(list.PropertyPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		classListed := path == "" || list.DeviceClasses == nil || slices.Contains(list.DeviceClasses, "*") ||
			nodes[path] != "" && slices.Contains(list.DeviceClasses, nodes[path])
		refused := name == "LD_PRELOAD" || path == "/dev/mem" || path == "/dev/link"
		require.Equal(t, nameListed && classListed && !refused, got, problem)

		switch {
		case got:
			require.Empty(t, problem)
		case name == "LD_PRELOAD":
			require.Contains(t, problem, "--allow-properties")
		case !nameListed:
			require.Contains(t, problem, "(chart value global.allowFromHandlers."+handler+".propertyPrefixes)")
		case !classListed:
			require.Contains(t, problem, "(chart value global.allowFromHandlers."+handler+".deviceClasses)")
		default:
			require.Contains(t, problem, "which gives control of the node")
		}
	})
}

// Each handler of this project has a list, so that a new one is not forgotten here.
func TestHandlersHaveAllowLists(t *testing.T) {
	for _, handler := range catalog.Handlers {
		require.Equal(t, declared[handler.Name], handler.Allow, handler.Name)
	}
	require.Len(t, declared, len(catalog.Handlers)+1)
}

// Neither an allowed path nor an allowed class widens the list of a handler.
func TestAllowListsPrecedeOtherSettings(t *testing.T) {
	policy := inventory.Policy{AllowHostPaths: []string{"/dev", "/run"}, AllowProperties: []string{"LD_PRELOAD"}}
	nodes := classes{"/dev/ttyUSB0": "ttyUSB", "/dev/mem": "refused"}
	for _, path := range []string{"/dev/ttyUSB0", "/dev/mem", "/dev/serial/by-id/link", "/run/x"} {
		got, _ := accepts(policy, "onvif", "", withNode(path, "/dev/x"), nodes)
		require.False(t, got, path)
		got, problem := accepts(policy, "lamp", "", withNode(path, "/dev/x"), nodes)
		require.True(t, got, problem)
	}
	dangerous := &discoveryv0.Device{Id: "x", Properties: map[string]string{"LD_PRELOAD": "x"}}
	got, _ := accepts(policy, "onvif", "", dangerous, nodes)
	require.False(t, got)
	got, problem := accepts(policy, "lamp", "", dangerous, nodes)
	require.True(t, got, problem)
}

func TestMessagesOfAllowLists(t *testing.T) {
	policy := inventory.Policy{AllowFromHandlers: inventory.AllowLists{"lamp": {DeviceClasses: []string{"ttyUSB", "ttyACM"}}}}
	nodes := classes{"/dev/video0": "video4linux"}
	_, problem := accepts(policy, "onvif", "", &discoveryv0.Device{Id: "x", Properties: map[string]string{"SERIAL": "1"}}, nodes)
	require.Equal(t, `Discovery Handler "onvif" at /x sent device "x" with property "SERIAL": handlers named "onvif" may send only properties whose `+
		"names begin with ONVIF_; if containers may use it, allow it with --allow-from-handlers "+
		"(chart value global.allowFromHandlers.onvif.propertyPrefixes)", problem)
	_, problem = accepts(policy, "onvif", "", withNode("/dev/video0", "/dev/x"), nodes)
	require.Equal(t, `Discovery Handler "onvif" at /x sent device "x" with device node of host path "/dev/video0", whose class is "video4linux"; `+
		"handlers named \"onvif\" may send no device nodes; if containers may use it, allow it with --allow-from-handlers "+
		"(chart value global.allowFromHandlers.onvif.deviceClasses)", problem)
	_, problem = accepts(policy, "lamp", "", withNode("/dev/video0", "/dev/x"), nodes)
	require.Contains(t, problem, `handlers named "lamp" may send only device nodes of the classes ttyUSB, ttyACM; `)
}

func TestAllowListsAreDecoded(t *testing.T) {
	var lists inventory.AllowLists
	require.NoError(t, lists.UnmarshalText([]byte(`{"lamp": {"deviceClasses": [], "propertyPrefixes": ["LAMP_"]}, "onvif": {}}`)))
	require.Equal(t, inventory.AllowLists{"lamp": {DeviceClasses: []string{}, PropertyPrefixes: []string{"LAMP_"}}, "onvif": {}}, lists)
	var none inventory.AllowLists
	require.NoError(t, none.UnmarshalText(nil))
	require.Empty(t, none)
	for _, text := range []string{"lamp", `{"lamp": ["ttyUSB"]}`, `{"lamp": {"deviceClass": []}}`, `{} {}`, `{"lamp": {}`} {
		require.ErrorContains(t, new(inventory.AllowLists).UnmarshalText([]byte(text)), "decode the allow lists", text)
	}
}

// FuzzAllowLists reads any text as the lists. What is decoded is one JSON object with known keys:
// decoded again, it gives the same lists.
func FuzzAllowLists(f *testing.F) {
	for _, text := range []string{
		"", "null", "{}", "{} {}", "[]", `{"lamp": null}`, `{"lamp": {"deviceClasses": null}}`, `{"lamp": {"deviceClass": []}}`,
		`{"lamp": {"deviceClasses": ["ttyUSB"], "propertyPrefixes": ["LAMP_"]}, "onvif": {}}`, `{"a": {"DEVICECLASSES": ["*"]}, "a": {}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var lists inventory.AllowLists
		if lists.UnmarshalText([]byte(text)) != nil || text == "" {
			return
		}
		var object map[string]map[string][]string
		require.NoError(t, json.Unmarshal([]byte(text), &object))
		for _, list := range object {
			for key := range list {
				require.True(t, strings.EqualFold(key, "deviceClasses") || strings.EqualFold(key, "propertyPrefixes"), key)
			}
		}

		written, err := json.Marshal(lists)
		require.NoError(t, err)
		var again inventory.AllowLists
		require.NoError(t, again.UnmarshalText(written))
		require.Equal(t, lists, again)
	})
}
