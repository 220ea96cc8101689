package relay

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// message is an encoded message of any type.
type message struct{ content []byte }

// decode decodes the message. The values of one that is malformed are missing, and the plugin
// refuses it.
func (m message) decode(target proto.Message) { _ = proto.Unmarshal(m.content, target) }

// codec leaves messages as they are. Those of the server's own services are protobuf.
type codec struct{}

// Name implements encoding.CodecV2.
func (codec) Name() string { return encodingproto.Name }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(value any) (mem.BufferSlice, error) {
	if m, raw := value.(*message); raw {
		return mem.BufferSlice{mem.SliceBuffer(m.content)}, nil
	}
	return encoding.GetCodecV2(encodingproto.Name).Marshal(value)
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, target any) error {
	if m, raw := target.(*message); raw {
		m.content = data.Materialize()
		return nil
	}
	if err := encoding.GetCodecV2(encodingproto.Name).Unmarshal(data, target); err != nil {
		return fmt.Errorf("decode %T: %w", target, err)
	}
	return nil
}
