package server //nolint:testpackage // parseReport is not exported

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/rpc"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/reports"
)

// maxMessageBytes is that of docs/security.md.
const maxMessageBytes = 4 << 20

// heap returns the bytes in memory that are in use. What package unique no longer needs is freed by
// the third collection at the latest, because a device refers to its properties. One in progress
// does not count.
func heap() int {
	least := uint64(math.MaxUint64)
	for range 5 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		least = min(least, stats.HeapAlloc)
	}
	return int(least)
}

// hostileReports generates reports of any shape that are one message.
func hostileReports(configuration string) *rapid.Generator[*instancev1.ReportDevicesRequest] {
	return rapid.Custom(func(t *rapid.T) *instancev1.ReportDevicesRequest { return hostileReport(t, configuration) })
}

func hostileReport(t *rapid.T, configuration string) *instancev1.ReportDevicesRequest {
	request := &instancev1.ReportDevicesRequest{Node: "hostile", Namespace: "ns", Configuration: configuration, ConfigurationUid: "1"}
	left := maxMessageBytes - 1<<10
	size := func(label string, most int) int { return rapid.IntRange(0, most).Draw(t, label) }
	add := func(bytes int) bool { left -= bytes + 16; return left > 0 }

	salt, valid := rapid.Uint32().Draw(t, "salt"), rapid.Bool().Draw(t, "valid")
	properties, bytes := size("properties", 100), rapid.SampledFrom([]int{0, 10, 1000, 100_000, 2 << 20}).Draw(t, "bytes")
	character := rapid.SampledFrom([]string{"x", "\x1b", "\u202e", "<"}).Draw(t, "character")
	for i := range size("devices", 20_000) {
		device := &discoveryv1.Device{Id: fmt.Sprint(salt, "-", i), Shared: true, Properties: map[string]string{}}
		if valid {
			device.Instance = akriv0.InstanceName(configuration, akriv0.Digest(device.GetId(), "hostile", true))
		}
		for property := range properties {
			device.Properties["P"+strconv.Itoa(property)] = strings.Repeat(character, bytes/len(character)/properties)
		}
		if !add(proto.Size(device)) {
			break
		}
		request.Devices = append(request.Devices, device)
	}

	text := strings.Repeat(character, size("text", 10_000))
	for range size("handlers", 100_000) {
		handler := &instancev1.HandlerState{Name: text, Endpoint: text}
		if !add(proto.Size(handler)) {
			break
		}
		request.Handlers = append(request.Handlers, handler)
	}
	evidence := size("evidence", 100)
	for range size("problems", 100_000) {
		problem := &instancev1.Problem{Reason: "Any", Message: text, Evidence: slices.Repeat([]string{text}, evidence)}
		if !add(proto.Size(problem)) {
			break
		}
		request.Problems = append(request.Problems, problem)
	}
	return request
}

// TestMemoryOfReports has a node that sends reports of any shape, each on another Configuration.
// What the store counts is within the limits of a node, and what stays of each report in memory is
// not much more than what the store counts.
func TestMemoryOfReports(t *testing.T) {
	const fixed = 1 << 20
	all := reports.New(math.MaxInt)
	ended := func(error) { t.Error("the stream ended") }
	stream := all.Open("hostile", ended)
	for seed := range 30 {
		key := types.NamespacedName{Namespace: "ns", Name: "cam-" + strconv.Itoa(seed)}
		before := heap()
		report, invalid := parseReport(hostileReports(key.Name).Example(seed))
		require.LessOrEqual(t, len(report.Handlers), maxHandlerStates)
		require.LessOrEqual(t, len(report.Problems), maxProblems)
		for _, device := range report.Devices {
			require.LessOrEqual(t, device.Value().Size(), cluster.MaxDeviceBytes)
		}
		for _, refusal := range invalid {
			require.Less(t, len(refusal.GetMessage()), 2<<10)
		}

		store := reports.New(math.MaxInt)
		_, ok := store.Put(store.Open("hostile", ended), key, report)
		require.True(t, ok)
		report.Excess = nil // as apply does when it has answered
		counted := store.Bytes()
		require.LessOrEqual(t, heap()-before, 2*counted+fixed, "seed %d: counted are %d bytes", seed, counted)
		runtime.KeepAlive(store)

		again, _ := parseReport(hostileReports(key.Name).Example(seed))
		_, ok = all.Put(stream, key, again)
		require.True(t, ok)
		require.LessOrEqual(t, all.Bytes(), cluster.MaxNodeBytes+cluster.MaxNodeDevices*256+cluster.MaxNodeText)
	}
}

// TestMemoryOfMessages decodes messages that take a multiple of their size in memory, of each kind
// of value that a report has. They are refused before they are decoded.
func TestMemoryOfMessages(t *testing.T) {
	const maxValues = 100_000
	nested := func(outer string, inner string, times int) string {
		content := strings.Repeat(inner, times)
		return outer + string(appendVarint(nil, len(content))) + content
	}
	descriptor := (&instancev1.ReportDevicesRequest{}).ProtoReflect().Descriptor()
	units := map[string]string{
		"devices": "\x3a\x00", "handlers": "\x42\x00", "times": "\x42\x02\x22\x00", "problems": "\x4a\x00",
		"subjects": "\x4a\x02\x1a\x00", "waits": "\x4a\x06\x2a\x04\x12\x00\x1a\x00", "evidence": nested("\x4a", "\x22\x00", 1000),
		"properties": nested("\x3a", "\x22\x02\x0a\x00", 1000), "mounts": nested("\x3a", "\x2a\x00", 1000), "nodes": nested("\x3a", "\x32\x00", 1000),
	}
	for _, name := range slices.Sorted(maps.Keys(units)) {
		t.Run(name, func(t *testing.T) {
			text := []byte(strings.Repeat(units[name], maxMessageBytes/len(units[name])))
			require.NoError(t, proto.Unmarshal(text, &instancev1.ReportDevicesRequest{}), "the message is valid")
			require.Greater(t, rpc.Values(text, descriptor, maxValues), maxValues)

			before, accepted := heap(), text
			for rpc.Values(accepted, descriptor, maxValues) > maxValues {
				accepted = accepted[:len(accepted)/2/len(units[name])*len(units[name])]
			}
			var message instancev1.ReportDevicesRequest
			require.NoError(t, proto.Unmarshal(accepted, &message))
			require.Less(t, heap()-before, 24<<20)
			runtime.KeepAlive(&message)
		})
	}
}

func appendVarint(text []byte, value int) []byte {
	for ; value >= 0x80; value >>= 7 {
		text = append(text, byte(value)|0x80)
	}
	return append(text, byte(value))
}
