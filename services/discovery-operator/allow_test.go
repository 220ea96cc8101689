package operator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/catalog"
	"akri.sh/libs/trial"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/inventory"
)

// sending returns a handler that sends one list.
func sending(devices ...*discoveryv0.Device) handlerFunc {
	return func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		if err := stream.Send(&discoveryv0.DiscoverResponse{Devices: devices}); err != nil {
			return err
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}
}

func withProperty(id, name string) *discoveryv0.Device {
	return &discoveryv0.Device{Id: id, Properties: map[string]string{name: "1"}}
}

func withNull(id string) *discoveryv0.Device {
	return &discoveryv0.Device{Id: id, DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: "/dev/null"}}}
}

// Finding 6: a foreign handler that registers with the name of a handler of this project is held
// by its list. The devices of the own handler stay, and so do those of handlers without a list.
func TestForeignHandlerIsHeldByTheList(t *testing.T) {
	for _, own := range catalog.Handlers {
		t.Run(own.Name, func(t *testing.T) {
			h := newHarness(t, forever)
			prefix := own.Allow.PropertyPrefixes[0]
			sending(withProperty("own", prefix+"X")).serve(t, h, own.Name)
			sending(withProperty("own", "CAMERA_URL"), withProperty("a", "CAMERA_URL"), withProperty("b", "LD_PRELOAD"), withNull("node")).
				serve(t, h, own.Name)
			sending(withProperty("a", "CAMERA_URL"), withNull("node")).serve(t, h, "lamp")
			h.start()

			accepted := []string{"own"}
			if len(own.Allow.DeviceClasses) > 0 {
				accepted = append(accepted, "node")
			}
			key := h.apply(h.namespace, "own", own.Name, "udevRules: []")
			report := h.reported(key, true, accepted...)
			for _, device := range report.GetDevices() {
				require.NotContains(t, device.GetProperties(), "CAMERA_URL")
			}
			messages := ""
			for _, problem := range report.GetProblems() {
				require.Equal(t, akriv0.ReasonInvalidDevice, problem.GetReason())
				messages += problem.GetMessage() + "\n"
			}
			require.Contains(t, messages, `device "a" with property "CAMERA_URL": `)
			require.Contains(t, messages, "(chart value global.allowFromHandlers."+own.Name+".propertyPrefixes)")
			require.Contains(t, messages, `device "b" with property "LD_PRELOAD": changes how programs run`)

			require.Empty(t, h.reported(h.apply(h.namespace, "lamps", "lamp", ""), true, "a", "node").GetProblems())
		})
	}
}

// udev rules select devices of any class, so the list of udev has all of them. What is refused to
// all handlers is refused to each process that registers as udev, whatever its list allows.
func TestDeviceNodesThatUdevMustNotOffer(t *testing.T) {
	lists := map[string]inventory.AllowLists{"own list": nil, "set": {"udev": {DeviceClasses: []string{catalog.Everything}}}}
	for name, list := range lists {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, forever)
			h.config.AllowFromHandlers = list
			classes := map[string]string{"/dev/kmsg": "kmsg", "/dev/ptmx": "ptmx", "/dev/tty": "tty"} // of each kernel
			devices := []*discoveryv0.Device{withNull("null")}
			for path := range classes {
				devices = append(devices, &discoveryv0.Device{Id: path, DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: path}}})
			}
			sending(devices...).serve(t, h, "udev")
			h.start()

			report := h.reported(h.apply(h.namespace, "nodes", "udev", "udevRules: []"), true, "null")
			var messages strings.Builder
			for _, problem := range report.GetProblems() {
				require.Equal(t, akriv0.ReasonInvalidDevice, problem.GetReason())
				messages.WriteString(problem.GetMessage() + "\n")
			}
			for path, class := range classes {
				require.Contains(t, messages.String(), fmt.Sprintf("%q, which gives control of the node, and needs its class %q in --allow-device-classes", path, class))
			}
		})
	}
}

// The author of a Configuration allows names of properties by writing them into the details.
func TestDetailsNameProperties(t *testing.T) {
	h := newHarness(t, forever)
	sending(withProperty("x", "CAMERA_SERIAL")).serve(t, h, "udev")
	h.start()
	key := h.apply(h.namespace, "cameras", "udev", "properties:\n  CAMERA_SERIAL: ATTRS{serial}\n")
	require.Empty(t, h.reported(key, true, "x").GetProblems())
	h.edit(key, func(request *configurationv1.DiscoveryRequest) {
		request.Details = "properties: {MY_CAMERA_SERIAL: ATTRS{serial}}"
	})
	h.reported(key, true)
	require.Contains(t, h.problem(key, akriv0.ReasonInvalidDevice).GetMessage(), "global.allowFromHandlers.udev.propertyPrefixes")
}

// The command try applies the same lists as the service, which settings replace.
func TestTryAppliesAllowLists(t *testing.T) {
	tr := newTrials(t)
	tr.add(t, true, map[string]answer{"d": {ids: []string{"x"}}, `{"by": "ID"}`: {ids: []string{"x"}}})
	try := func(details string) trial.Result {
		return tr.try(t, trial.Request{Handler: "foo", Details: details, Timeout: soon})
	}
	require.Len(t, try("d").Devices, 1)
	tr.config.AllowFromHandlers = inventory.AllowLists{"foo": {PropertyPrefixes: []string{"FOO_"}}}
	result := try("d")
	require.Empty(t, result.Devices)
	require.Contains(t, result.Problems[0].Message, "global.allowFromHandlers.foo.propertyPrefixes")
	require.Len(t, try(`{"by": "ID"}`).Devices, 1)
}
