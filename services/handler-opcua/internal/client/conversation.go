package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uacp"
	"github.com/gopcua/opcua/uasc"
)

const (
	// maxChunk is the largest part of a message: what servers are told that the buffer has.
	maxChunk = uacp.DefaultReceiveBufSize
	// leastChunk is the smallest buffer that a server may have (OPC 10000-6, 7.1.2.3).
	leastChunk = 8 << 10
	// chunkHeader are the type of a message, whether it is the last part, and its length.
	chunkHeader = 8
)

var errLate = errors.New("the server does not answer in time")

// conversation asks over one connection, without security (OPC 10000-6, 6.7). The library's own client lets a server
// set its limits, keeps what belongs to no question, and makes arrays as long as a server says: one answer of a few bytes
// could take all memory. Here no more is read than `left`.
type conversation struct {
	*net.TCPConn
	channel, token uint32
	sequence       uint32
	left           int
}

// converse opens a conversation in which the server may say so many bytes. It ends with ctx.
func (c Client) converse(ctx context.Context, url string, bytes int, use func(*conversation) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	dialer := &uacp.Dialer{
		Dialer: &net.Dialer{Timeout: c.DialTimeout},
		ClientACK: &uacp.Acknowledge{
			ReceiveBufSize: maxChunk, SendBufSize: uacp.DefaultSendBufSize, MaxMessageSize: uint32(bytes),
			MaxChunkCount: uint32(bytes/leastChunk + 1),
		},
	}
	connection, err := dialer.Dial(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = connection.Close() }()
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	conversation := &conversation{TCPConn: connection.TCPConn, left: bytes}
	if err = conversation.open(c.Timeout); err == nil {
		err = use(conversation)
	}
	if err != nil && ctx.Err() != nil {
		return errLate // the connection was closed, which nobody needs to be told
	}
	_ = conversation.send(uasc.MessageTypeCloseSecureChannel, &ua.CloseSecureChannelRequest{}) // it may have hung up
	return err
}

func (c *conversation) open(lifetime time.Duration) error {
	err := c.exchange(uasc.MessageTypeOpenSecureChannel, &ua.OpenSecureChannelRequest{
		RequestType: ua.SecurityTokenRequestTypeIssue, SecurityMode: ua.MessageSecurityModeNone,
		RequestedLifetime: uint32(2 * lifetime.Milliseconds()),
	}, &ua.OpenSecureChannelResponse{}, func(r *reader) {
		r.ReadUint32() // version
		c.channel, c.token = r.ReadUint32(), r.ReadUint32()
	})
	if err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	return nil
}

// ask sends a request and has read what the answer of the wanted type says after its header.
func (c *conversation) ask(request ua.Request, wanted ua.Response, read func(*reader)) error {
	return c.exchange(uasc.MessageTypeMessage, request, wanted, read)
}

func (c *conversation) exchange(kind string, request ua.Request, wanted ua.Response, read func(*reader)) error {
	if err := c.send(kind, request); err != nil {
		return err
	}
	body, err := c.receive()
	if err != nil {
		return err
	}
	r := newReader(body)
	r.header(ua.ServiceTypeID(wanted))
	if r.err() == nil {
		read(r)
	}
	return r.err()
}

func (c *conversation) send(kind string, request ua.Request) error {
	c.sequence++
	request.SetHeader(&ua.RequestHeader{
		AuthenticationToken: ua.NewTwoByteNodeID(0), Timestamp: time.Now(), RequestHandle: c.sequence,
		AdditionalHeader: ua.NewExtensionObject(nil),
	})
	message := uasc.Message{
		MessageHeader: &uasc.MessageHeader{
			Header:                   uasc.NewHeader(kind, uasc.ChunkTypeFinal, c.channel),
			AsymmetricSecurityHeader: uasc.NewAsymmetricSecurityHeader(ua.SecurityPolicyURINone, nil, nil),
			SymmetricSecurityHeader:  uasc.NewSymmetricSecurityHeader(c.token),
			SequenceHeader:           uasc.NewSequenceHeader(c.sequence, c.sequence),
		},
		TypeID:  ua.NewFourByteExpandedNodeID(0, ua.ServiceTypeID(request)),
		Service: request,
	}
	data, err := message.Encode()
	if err != nil {
		return fmt.Errorf("encode %T: %w", request, err)
	}
	if _, err := c.Write(data); err != nil {
		return fmt.Errorf("send %T: %w", request, err)
	}
	return nil
}

// receive returns the answer to the last request.
func (c *conversation) receive() ([]byte, error) {
	var whole []byte
	for {
		var header [chunkHeader]byte
		if _, err := io.ReadFull(c, header[:]); err != nil {
			return nil, fmt.Errorf("receive: %w", err)
		}
		size := int(binary.LittleEndian.Uint32(header[4:]))
		if size < chunkHeader || size > maxChunk {
			return nil, fmt.Errorf("part of a message has %d bytes: want %d to %d", size, chunkHeader, maxChunk)
		}
		if c.left -= size; c.left < 0 {
			return nil, errors.New("the server says more than is listened to")
		}
		chunk := make([]byte, size-chunkHeader)
		if _, err := io.ReadFull(c, chunk); err != nil {
			return nil, fmt.Errorf("receive: %w", err)
		}
		part, err := c.part(string(header[:3]), header[3], chunk)
		if err != nil {
			return nil, err
		}
		whole = append(whole, part...)
		if header[3] == uasc.ChunkTypeFinal {
			return whole, nil
		}
	}
}

// part is what a chunk carries.
func (c *conversation) part(kind string, chunkType byte, chunk []byte) ([]byte, error) {
	r := newReader(chunk)
	switch kind {
	case "ERR":
		return nil, fmt.Errorf("the server refuses: %w", ua.StatusCode(r.ReadUint32()))
	case uasc.MessageTypeOpenSecureChannel:
		r.ReadUint32() // channel
		if policy := r.ReadString(); policy != ua.SecurityPolicyURINone {
			return nil, fmt.Errorf("the server answers with security policy %q: want none", policy)
		}
		r.ReadBytes() // certificate
		r.ReadBytes() // its thumbprint
	case uasc.MessageTypeMessage:
		r.ReadUint32() // channel
		r.ReadUint32() // token
	default:
		return nil, fmt.Errorf("message of type %q: want an answer", kind)
	}
	r.ReadUint32() // sequence number
	switch id := r.ReadUint32(); {
	case r.Error() != nil:
		return nil, fmt.Errorf("read part of a message: %w", r.Error())
	case id != c.sequence:
		return nil, fmt.Errorf("an answer to question %d: want one to %d", id, c.sequence)
	case chunkType == uasc.ChunkTypeError:
		return nil, fmt.Errorf("the server gives up: %w", ua.StatusCode(r.ReadUint32()))
	}
	return r.Bytes(), nil
}
