package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uacp"
	"github.com/gopcua/opcua/uasc"

	"akri.sh/libs/handler/address"
)

const (
	// maxChunkSize is the largest chunk that is received. The Hello message announces it as the
	// buffer size.
	maxChunkSize = uacp.DefaultReceiveBufSize
	// minChunkSize is the smallest buffer that a server may use (OPC 10000-6, 7.1.2.3).
	minChunkSize = 8 << 10
	// chunkHeaderSize covers message type, chunk type and message size.
	chunkHeaderSize = 8
)

var errTimeout = errors.New("the server did not respond in time")

// conn is a connection with a secure channel of security mode None (OPC 10000-6, 6.7). It replaces
// gopcua's own channel, which accepts the limits that the server sends, keeps chunks that belong to
// no request, and allocates arrays of the length that a response claims. A conn reads at most
// `remaining` bytes. See docs/upstream/gopcua-message-limits.md.
type conn struct {
	*net.TCPConn
	channelID, tokenID uint32
	sequence           uint32 // of the last request; also its request id
	remaining          int
}

// withConn opens a connection that receives at most maxBytes, and closes it when use returns or ctx
// ends.
func (c Client) withConn(ctx context.Context, url string, maxBytes int, use func(*conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	dialer := &uacp.Dialer{
		Dialer: &net.Dialer{Timeout: c.DialTimeout, ControlContext: address.Control},
		ClientACK: &uacp.Acknowledge{
			ReceiveBufSize: maxChunkSize, SendBufSize: uacp.DefaultSendBufSize, MaxMessageSize: uint32(maxBytes),
			MaxChunkCount: uint32(maxBytes/minChunkSize + 1),
		},
	}
	dialed, err := dialer.Dial(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = dialed.Close() }()
	defer context.AfterFunc(ctx, func() { _ = dialed.Close() })()
	conn := &conn{TCPConn: dialed.TCPConn, remaining: maxBytes}
	if err = conn.open(c.Timeout); err == nil {
		err = use(conn)
	}
	if err != nil && ctx.Err() != nil {
		return errTimeout // hides the error of the closed connection
	}
	_ = conn.send(uasc.MessageTypeCloseSecureChannel, &ua.CloseSecureChannelRequest{}) // the server may have closed it
	return err
}

// remote returns the address of the server.
func (c *conn) remote() netip.Addr {
	remote, _ := c.RemoteAddr().(*net.TCPAddr)
	return remote.AddrPort().Addr().Unmap()
}

func (c *conn) open(timeout time.Duration) error {
	err := c.roundTrip(uasc.MessageTypeOpenSecureChannel, &ua.OpenSecureChannelRequest{
		RequestType: ua.SecurityTokenRequestTypeIssue, SecurityMode: ua.MessageSecurityModeNone,
		RequestedLifetime: uint32(2 * timeout.Milliseconds()),
	}, &ua.OpenSecureChannelResponse{}, func(r *reader) {
		r.ReadUint32() // protocol version
		c.channelID, c.tokenID = r.ReadUint32(), r.ReadUint32()
	})
	if err != nil {
		return fmt.Errorf("open secure channel: %w", err)
	}
	return nil
}

// request sends a request and calls read with the response, which has the type of expected, after
// its header.
func (c *conn) request(request ua.Request, expected ua.Response, read func(*reader)) error {
	return c.roundTrip(uasc.MessageTypeMessage, request, expected, read)
}

func (c *conn) roundTrip(messageType string, request ua.Request, expected ua.Response, read func(*reader)) error {
	if err := c.send(messageType, request); err != nil {
		return err
	}
	body, err := c.receive()
	if err != nil {
		return err
	}
	r := newReader(body)
	r.header(ua.ServiceTypeID(expected))
	if r.err() == nil {
		read(r)
	}
	return r.err()
}

func (c *conn) send(messageType string, request ua.Request) error {
	c.sequence++
	request.SetHeader(&ua.RequestHeader{
		AuthenticationToken: ua.NewTwoByteNodeID(0), Timestamp: time.Now(), RequestHandle: c.sequence,
		AdditionalHeader: ua.NewExtensionObject(nil),
	})
	message := uasc.Message{
		MessageHeader: &uasc.MessageHeader{
			Header:                   uasc.NewHeader(messageType, uasc.ChunkTypeFinal, c.channelID),
			AsymmetricSecurityHeader: uasc.NewAsymmetricSecurityHeader(ua.SecurityPolicyURINone, nil, nil),
			SymmetricSecurityHeader:  uasc.NewSymmetricSecurityHeader(c.tokenID),
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

// receive returns the body of the response to the last request, merged from its chunks.
func (c *conn) receive() ([]byte, error) {
	var message []byte
	for {
		var header [chunkHeaderSize]byte
		if _, err := io.ReadFull(c, header[:]); err != nil {
			return nil, fmt.Errorf("receive: %w", err)
		}
		size := int(binary.LittleEndian.Uint32(header[4:]))
		if size < chunkHeaderSize || size > maxChunkSize {
			return nil, fmt.Errorf("chunk size %d must be %d to %d bytes", size, chunkHeaderSize, maxChunkSize)
		}
		if c.remaining -= size; c.remaining < 0 {
			return nil, errors.New("the responses exceed the size limit")
		}
		chunk := make([]byte, size-chunkHeaderSize)
		if _, err := io.ReadFull(c, chunk); err != nil {
			return nil, fmt.Errorf("receive: %w", err)
		}
		body, err := c.chunkBody(string(header[:3]), header[3], chunk)
		if err != nil {
			return nil, err
		}
		message = append(message, body...)
		if header[3] == uasc.ChunkTypeFinal {
			return message, nil
		}
	}
}

// chunkBody checks the headers of a chunk and returns what follows them.
func (c *conn) chunkBody(messageType string, chunkType byte, chunk []byte) ([]byte, error) {
	r := newReader(chunk)
	switch messageType {
	case "ERR":
		return nil, fmt.Errorf("the server closed the connection: %w", ua.StatusCode(r.ReadUint32()))
	case uasc.MessageTypeOpenSecureChannel:
		r.ReadUint32() // channel id
		if policy := r.ReadString(); policy != ua.SecurityPolicyURINone {
			return nil, fmt.Errorf("security policy of the response is %q, must be None", policy)
		}
		r.ReadBytes() // certificate
		r.ReadBytes() // certificate thumbprint
	case uasc.MessageTypeMessage:
		r.ReadUint32() // channel id
		r.ReadUint32() // token id
	default:
		return nil, fmt.Errorf("message type %q is not a response", messageType)
	}
	r.ReadUint32() // sequence number
	switch id := r.ReadUint32(); {
	case r.Error() != nil:
		return nil, fmt.Errorf("read chunk header: %w", r.Error())
	case id != c.sequence:
		return nil, fmt.Errorf("response is for request %d, must be for request %d", id, c.sequence)
	case chunkType == uasc.ChunkTypeError:
		return nil, fmt.Errorf("the server aborted the response: %w", ua.StatusCode(r.ReadUint32()))
	}
	return r.Bytes(), nil
}
