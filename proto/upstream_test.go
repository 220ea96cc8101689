// Package proto_test checks the APIs that are those of upstream Akri.
package proto_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"akri.sh/proto/camera"
	"akri.sh/proto/opcuanode"
)

// TestUpstreamBrokers compares the APIs of brokers with what clients of upstream Akri's brokers
// have been generated from (github.com/project-akri/akri):
// samples/brokers/onvif-video-broker/camera.proto at 9414ef0f and
// samples/brokers/opcua-monitoring-broker/opcua_node.proto at b7ec9e14. On the wire are the names
// of the methods, and the numbers and kinds of the fields.
func TestUpstreamBrokers(t *testing.T) {
	for _, c := range []struct {
		file protoreflect.FileDescriptor
		want []string
	}{
		{camera.File_camera_camera_proto, []string{
			"/camera.Camera/GetFrame: camera.NotifyRequest -> camera.NotifyResponse",
			"camera.NotifyResponse: 1 bytes frame",
			"camera.NotifyResponse: 2 string camera",
		}},
		{opcuanode.File_opcuanode_opcua_node_proto, []string{
			"/OpcuaNode.OpcuaNode/GetValue: OpcuaNode.ValueRequest -> OpcuaNode.ValueResponse",
			"OpcuaNode.ValueResponse: 1 int32 value",
			"OpcuaNode.ValueResponse: 2 string opcua_server",
		}},
	} {
		if got := describe(c.file); !slices.Equal(got, c.want) {
			t.Errorf("%s has\n%q, want\n%q", c.file.Path(), got, c.want)
		}
	}
}

// describe returns the methods and the fields of a file.
func describe(file protoreflect.FileDescriptor) (lines []string) {
	for service := range each(file.Services()) {
		for method := range each(service.Methods()) {
			line := fmt.Sprintf("/%s/%s: %s -> %s", service.FullName(), method.Name(), method.Input().FullName(), method.Output().FullName())
			if method.IsStreamingClient() || method.IsStreamingServer() {
				line += ", a stream"
			}
			lines = append(lines, line)
		}
	}
	for message := range each(file.Messages()) {
		for field := range each(message.Fields()) {
			line := fmt.Sprintf("%s: %d %s %s", message.FullName(), field.Number(), field.Kind(), field.Name())
			if field.Cardinality() == protoreflect.Repeated || field.HasPresence() {
				line += ", not a single value"
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// each returns the items of a list of descriptors.
func each[D any](list interface {
	Len() int
	Get(i int) D
}) func(func(D) bool) {
	return func(yield func(D) bool) {
		for i := range list.Len() {
			if !yield(list.Get(i)) {
				return
			}
		}
	}
}
