package rpc

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MaxValues is an option for servers whose clients are not trusted. It refuses messages with more
// than a number of values before they are decoded: an empty message in a list has two bytes, and a
// hundred times as many when it is decoded.
func MaxValues(limit int) grpc.ServerOption {
	return grpc.ForceServerCodecV2(limitedCodec{encoding.GetCodecV2(encodingproto.Name), limit})
}

type limitedCodec struct {
	encoding.CodecV2

	limit int
}

// Unmarshal implements encoding.CodecV2.
func (c limitedCodec) Unmarshal(data mem.BufferSlice, target any) error {
	message, ok := target.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no protobuf message", target)
	}
	text := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer text.Free()

	descriptor := message.ProtoReflect().Descriptor()
	if count := Values(text.ReadOnlyData(), descriptor, c.limit); count > c.limit {
		return fmt.Errorf("a message %s must have at most %d values", descriptor.Name(), c.limit)
	}
	return proto.Unmarshal(text.ReadOnlyData(), message)
}

// Values returns the number of messages, of entries of maps and of items of lists in an encoded
// message. It stops to count above the limit, and where the message is malformed: proto.Unmarshal
// decodes no more than that.
func Values(text []byte, message protoreflect.MessageDescriptor, limit int) (count int) {
	for len(text) > 0 && count <= limit {
		number, kind, length := protowire.ConsumeTag(text)
		if length < 0 {
			return count
		}
		size := protowire.ConsumeFieldValue(number, kind, text[length:])
		if size < 0 {
			return count
		}
		value := text[length : length+size]
		text = text[length+size:]
		field := message.Fields().ByNumber(number)
		if field == nil {
			continue // it is not decoded
		}

		content, _ := protowire.ConsumeBytes(value)
		switch {
		case field.Message() != nil && kind == protowire.BytesType:
			count += 1 + Values(content, field.Message(), limit-count)
		case field.IsPacked() && kind == protowire.BytesType:
			count += len(content)
		case field.IsList():
			count++
		}
	}
	return count
}
