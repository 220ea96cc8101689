package client_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uacp"
	"github.com/stretchr/testify/require"

	"akri.sh/services/handler-opcua/internal/client"
)

// serve accepts one connection and calls respond with each message of the client. Its Acknowledge
// message claims the largest possible limits.
func serve(t *testing.T, respond func(conn net.Conn, request []byte)) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := fmt.Sprintf("opc.tcp://%s/", listener.Addr())
	var running sync.WaitGroup
	running.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		for {
			header := make([]byte, 8)
			if _, err := io.ReadFull(conn, header); err != nil {
				return
			}
			body := make([]byte, binary.LittleEndian.Uint32(header[4:])-8)
			if _, err := io.ReadFull(conn, body); err != nil {
				return
			}
			if string(header[:3]) == "HEL" {
				ack, _ := (&uacp.Acknowledge{
					ReceiveBufSize: math.MaxUint32, SendBufSize: math.MaxUint16, MaxMessageSize: math.MaxUint32, MaxChunkCount: math.MaxUint32,
				}).Encode()
				_, _ = conn.Write(chunk("ACKF", ack))
				continue
			}
			respond(conn, append(header, body...))
		}
	})
	t.Cleanup(func() { _ = listener.Close(); running.Wait() })
	return url
}

// chunk encodes a chunk. The kind is the message type and the chunk type.
func chunk(kind string, body []byte) []byte {
	data := binary.LittleEndian.AppendUint32([]byte(kind), uint32(len(body)+8))
	return append(data, body...)
}

// message encodes a chunk of the response to a request, on channel 1.
func message(kind string, requestID uint32, body []byte) []byte {
	var header []byte
	for _, number := range []uint32{1, 1, requestID, requestID} {
		header = binary.LittleEndian.AppendUint32(header, number)
	}
	return chunk(kind, append(header, body...))
}

func encoded(t *testing.T, response ua.Response) []byte {
	t.Helper()
	response.SetHeader(&ua.ResponseHeader{ServiceDiagnostics: &ua.DiagnosticInfo{}, AdditionalHeader: ua.NewExtensionObject(nil)})
	id, err := ua.NewFourByteExpandedNodeID(0, ua.ServiceTypeID(response)).Encode()
	require.NoError(t, err)
	body, err := ua.Encode(response)
	require.NoError(t, err)
	return append(id, body...)
}

// afterOpen opens the secure channel and calls respond for all later requests.
func afterOpen(t *testing.T, respond func(conn net.Conn)) func(net.Conn, []byte) {
	t.Helper()
	open := encoded(t, &ua.OpenSecureChannelResponse{SecurityToken: &ua.ChannelSecurityToken{ChannelID: 1, TokenID: 1}})
	policy := ua.NewBuffer(nil)
	policy.WriteUint32(1)
	policy.WriteString(ua.SecurityPolicyURINone)
	policy.WriteByteString(nil)
	policy.WriteByteString(nil)
	policy.WriteUint32(1)
	policy.WriteUint32(1)
	return func(conn net.Conn, request []byte) {
		if string(request[:3]) == "OPN" {
			_, _ = conn.Write(chunk("OPNF", append(policy.Bytes(), open...)))
			return
		}
		respond(conn)
	}
}

func TestHostileResponsesAreRejected(t *testing.T) {
	array := encoded(t, &ua.FindServersResponse{})
	binary.LittleEndian.PutUint32(array[len(array)-4:], 1<<30)
	for want, respond := range map[string]func(conn net.Conn){
		"the responses exceed the size limit": func(conn net.Conn) {
			chunk := message("MSGC", 2, make([]byte, 60_000))
			for {
				if _, err := conn.Write(chunk); err != nil {
					return
				}
			}
		},
		"array of 1073741824 elements exceeds":     func(conn net.Conn) { _, _ = conn.Write(message("MSGF", 2, array)) },
		"response is for request 7":                func(conn net.Conn) { _, _ = conn.Write(message("MSGF", 7, array)) },
		"chunk size 4294967295 must be 8 to 65535": func(conn net.Conn) { _, _ = conn.Write([]byte("MSGF\xff\xff\xff\xff")) },
		"the server aborted the response":          func(conn net.Conn) { _, _ = conn.Write(message("MSGA", 2, []byte{0, 0, 3, 0x80})) },
		"unexpected EOF":                           func(conn net.Conn) { _, _ = conn.Write(message("MSGF", 2, array[:20])) },
		"response has type": func(conn net.Conn) {
			_, _ = conn.Write(message("MSGF", 2, encoded(t, &ua.GetEndpointsResponse{})))
		},
		"the server closed the connection":     func(conn net.Conn) { _, _ = conn.Write(chunk("ERRF", make([]byte, 8))) },
		`message type "HEL" is not a response`: func(conn net.Conn) { _, _ = conn.Write(chunk("HELF", make([]byte, 40))) },
	} {
		t.Run(want, func(t *testing.T) {
			url := serve(t, afterOpen(t, respond))
			_, err := client.Client{DialTimeout: 5 * time.Second, Timeout: 20 * time.Second}.FindServers(t.Context(), url)
			require.ErrorContains(t, err, want)
		})
	}
}

func TestServerWithoutResponseIsATimeout(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, afterOpen(t, func(net.Conn) { cancel() })) // ctx ends after the server got the request
	_, _, err := client.Client{DialTimeout: 5 * time.Second, Timeout: 20 * time.Second}.GetEndpoints(ctx, url)
	require.ErrorContains(t, err, "did not respond in time")
}

func TestChunksAreMerged(t *testing.T) {
	response := encoded(t, &ua.FindServersResponse{Servers: []*ua.ApplicationDescription{{
		ApplicationURI: "urn:a", ApplicationName: ua.NewLocalizedText("Pr\xfcfstand"), DiscoveryURLs: []string{"opc.tcp://a:1"},
	}}})
	responded := false
	url := serve(t, afterOpen(t, func(conn net.Conn) {
		if responded {
			_ = conn.Close() // some servers do so on a FindServersOnNetwork request
			return
		}
		responded = true
		_, _ = conn.Write(message("MSGC", 2, response[:30]))
		_, _ = conn.Write(message("MSGF", 2, response[30:]))
	}))
	found, err := client.Client{DialTimeout: 5 * time.Second, Timeout: 20 * time.Second}.FindServers(t.Context(), url)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", found.From.String())
	require.Empty(t, found.OnNetwork)
	applications := found.Applications
	require.Len(t, applications, 1)
	require.Equal(t, "urn:a", applications[0].URI)
	require.Equal(t, "Pr\uFFFDfstand", applications[0].Name)
	require.Equal(t, []string{"opc.tcp://a:1"}, applications[0].URLs)
}
