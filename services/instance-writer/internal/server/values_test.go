package server_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"akri.sh/libs/rpc"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// FuzzValues reads any text as each message that nodes send. It has at least as many values before
// it is decoded as afterwards, so that the limit of values holds for what is decoded.
func FuzzValues(f *testing.F) {
	for _, seed := range []proto.Message{
		&instancev1.ReportDevicesRequest{
			Node: "a", Complete: true, Devices: []*discoveryv1.Device{{Id: "1", Properties: map[string]string{"A": "1", "": ""}}, {}},
			Handlers: []*instancev1.HandlerState{{Name: "udev"}, {}},
			Problems: []*instancev1.Problem{{Evidence: []string{"", "x"}, Subject: &instancev1.Subject{}, Wait: &instancev1.Wait{}}},
		},
		&instancev1.ReserveSlotsRequest{Node: "a", Claims: []*instancev1.SlotClaim{{Instance: "x"}, {}}},
		&configurationv1.WatchConfigurationsRequest{Node: "a", Handlers: []string{"udev", ""}},
	} {
		text, err := proto.Marshal(seed)
		require.NoError(f, err)
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
	f.Add([]byte("\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"))

	requests := requestsOf(
		instancev1.File_akri_instance_v1_instance_proto.Services().ByName("InstanceService"),
		configurationv1.File_akri_configuration_v1_configuration_proto.Services().ByName("ConfigurationService"),
	)
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, request := range requests {
			decoded := dynamicpb.NewMessage(request)
			_ = proto.Unmarshal(text, decoded) // what is decoded of a malformed message takes memory, too
			count := valuesOf(decoded)

			all := rpc.Values(text, request, math.MaxInt)
			require.GreaterOrEqual(t, all, count, request.Name())
			require.Equal(t, all > count, rpc.Values(text, request, count) > count, request.Name())
		}
	})
}

func requestsOf(services ...protoreflect.ServiceDescriptor) (requests []protoreflect.MessageDescriptor) {
	for _, service := range services {
		for i := range service.Methods().Len() {
			requests = append(requests, service.Methods().Get(i).Input())
		}
	}
	return requests
}

// valuesOf counts the messages, the entries of maps and the items of lists of a message.
func valuesOf(message protoreflect.Message) (count int) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsList():
			count += value.List().Len()
			for i := 0; field.Message() != nil && i < value.List().Len(); i++ {
				count += valuesOf(value.List().Get(i).Message())
			}
		case field.IsMap():
			count += value.Map().Len()
			value.Map().Range(func(_ protoreflect.MapKey, entry protoreflect.Value) bool {
				if field.MapValue().Message() != nil {
					count += 1 + valuesOf(entry.Message())
				}
				return true
			})
		case field.Message() != nil:
			count += 1 + valuesOf(value.Message())
		}
		return true
	})
	return count
}
