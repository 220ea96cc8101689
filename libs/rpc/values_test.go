package rpc_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"akri.sh/libs/rpc"
)

// A Struct has entries, each with a message, and lists of messages, at any depth. The test counts
// them when they are decoded.
func TestValuesAreCountedBeforeTheyAreDecoded(t *testing.T) {
	var values func(depth int) *rapid.Generator[*structpb.Value]
	values = func(depth int) *rapid.Generator[*structpb.Value] {
		return rapid.Custom(func(t *rapid.T) *structpb.Value {
			switch kind := rapid.IntRange(0, 3).Draw(t, "kind"); {
			case kind == 0 && depth > 0:
				return structpb.NewListValue(&structpb.ListValue{Values: rapid.SliceOfN(values(depth-1), 0, 5).Draw(t, "items")})
			case kind == 1 && depth > 0:
				return structpb.NewStructValue(&structpb.Struct{
					Fields: rapid.MapOfN(rapid.String(), values(depth-1), 0, 5).Draw(t, "fields"),
				})
			case kind == 2:
				return structpb.NewStringValue(rapid.String().Draw(t, "text"))
			default:
				return structpb.NewBoolValue(true)
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		message := values(3).Draw(t, "message")
		text, err := proto.Marshal(message)
		require.NoError(t, err)
		descriptor := message.ProtoReflect().Descriptor()
		want := countOf(message)
		require.Equal(t, want, rpc.Values(text, descriptor, want))
		if limit := rapid.IntRange(0, 50).Draw(t, "limit"); limit < want {
			require.Greater(t, rpc.Values(text, descriptor, limit), limit)
		}

		cut := text[:rapid.IntRange(0, len(text)).Draw(t, "length")]
		decoded := &structpb.Value{}
		_ = proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(cut, decoded)
		require.GreaterOrEqual(t, rpc.Values(cut, descriptor, want), countOf(decoded), "of a malformed message no more is decoded")
	})
}

// countOf returns the values of a decoded message.
func countOf(value *structpb.Value) (count int) {
	if list := value.GetListValue(); list != nil {
		count++
		for _, item := range list.GetValues() {
			count += 1 + countOf(item)
		}
	}
	if object := value.GetStructValue(); object != nil {
		count++
		for _, item := range object.GetFields() {
			count++ // the entry
			if item != nil {
				count += 1 + countOf(item)
			}
		}
	}
	return count
}

// A list of strings has a value for each. Unknown fields have none.
func TestValuesOfLists(t *testing.T) {
	text, err := proto.Marshal(&fieldmaskpb.FieldMask{Paths: make([]string, 1000)})
	require.NoError(t, err)
	descriptor := (&fieldmaskpb.FieldMask{}).ProtoReflect().Descriptor()
	require.Equal(t, 1000, rpc.Values(text, descriptor, 2000))
	require.Equal(t, 11, rpc.Values(text, descriptor, 10))
	require.Zero(t, rpc.Values(bytes.Repeat([]byte("\x7a\x00"), 1000), descriptor, 10))
}
