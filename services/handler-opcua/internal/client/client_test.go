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

// answerWith serves one connection: each message of the client is followed by what the function says to it. The ACK claims limits
// of its own.
func answerWith(t *testing.T, say func(conn net.Conn, request []byte)) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := fmt.Sprintf("opc.tcp://%s/", listener.Addr())
	var serving sync.WaitGroup
	serving.Go(func() {
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
			say(conn, append(header, body...))
		}
	})
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	return url
}

// chunk is part of a message of the type and the kind of part.
func chunk(kind string, body []byte) []byte {
	data := binary.LittleEndian.AppendUint32([]byte(kind), uint32(len(body)+8))
	return append(data, body...)
}

// message is a part of the answer to the question, for the first channel.
func message(kind string, question uint32, body []byte) []byte {
	var head []byte
	for _, number := range []uint32{1, 1, question, question} {
		head = binary.LittleEndian.AppendUint32(head, number)
	}
	return chunk(kind, append(head, body...))
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

// opened answers the opening of the channel, and leaves the rest to say.
func opened(t *testing.T, say func(conn net.Conn)) func(net.Conn, []byte) {
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
		say(conn)
	}
}

func TestNoServerMakesItListenForLongOrKeepMuch(t *testing.T) {
	array := encoded(t, &ua.FindServersResponse{})
	binary.LittleEndian.PutUint32(array[len(array)-4:], 1<<30)
	for want, say := range map[string]func(conn net.Conn){
		"says more than is listened to": func(conn net.Conn) {
			part := message("MSGC", 2, make([]byte, 60_000))
			for {
				if _, err := conn.Write(part); err != nil {
					return
				}
			}
		},
		"an array of 1073741824 elements": func(conn net.Conn) { _, _ = conn.Write(message("MSGF", 2, array)) },
		"an answer to question 7":         func(conn net.Conn) { _, _ = conn.Write(message("MSGF", 7, array)) },
		"want 8 to 65535":                 func(conn net.Conn) { _, _ = conn.Write([]byte("MSGF\xff\xff\xff\xff")) },
		"the server gives up":             func(conn net.Conn) { _, _ = conn.Write(message("MSGA", 2, []byte{0, 0, 3, 0x80})) },
		"unexpected EOF":                  func(conn net.Conn) { _, _ = conn.Write(message("MSGF", 2, array[:20])) },
		"an answer of type": func(conn net.Conn) {
			_, _ = conn.Write(message("MSGF", 2, encoded(t, &ua.GetEndpointsResponse{})))
		},
		"the server refuses":    func(conn net.Conn) { _, _ = conn.Write(chunk("ERRF", make([]byte, 8))) },
		`message of type "HEL"`: func(conn net.Conn) { _, _ = conn.Write(chunk("HELF", make([]byte, 40))) },
	} {
		t.Run(want, func(t *testing.T) {
			url := answerWith(t, opened(t, say))
			_, _, err := client.Client{DialTimeout: 5 * time.Second, Timeout: 20 * time.Second}.FindServers(t.Context(), url)
			require.ErrorContains(t, err, want)
		})
	}
}

func TestAServerThatIsSilentIsLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := answerWith(t, opened(t, func(net.Conn) { cancel() })) // time is over while it has the question
	_, _, err := client.Client{DialTimeout: 5 * time.Second, Timeout: 20 * time.Second}.Endpoints(ctx, url)
	require.ErrorContains(t, err, "does not answer in time")
}

func TestAnAnswerInPartsIsOne(t *testing.T) {
	answer := encoded(t, &ua.FindServersResponse{Servers: []*ua.ApplicationDescription{{
		ApplicationURI: "urn:a", ApplicationName: ua.NewLocalizedText("Pr\xfcfstand"), DiscoveryURLs: []string{"opc.tcp://a:1"},
	}}})
	answered := false
	url := answerWith(t, opened(t, func(conn net.Conn) {
		if answered {
			_ = conn.Close() // as servers do that do not know the second question
			return
		}
		answered = true
		_, _ = conn.Write(message("MSGC", 2, answer[:30]))
		_, _ = conn.Write(message("MSGF", 2, answer[30:]))
	}))
	known, onNetwork, err := client.Client{DialTimeout: 5 * time.Second, Timeout: 20 * time.Second}.FindServers(t.Context(), url)
	require.NoError(t, err)
	require.Empty(t, onNetwork)
	require.Len(t, known, 1)
	require.Equal(t, "urn:a", known[0].URI)
	require.Equal(t, "Pr\uFFFDfstand", known[0].Name)
	require.Equal(t, []string{"opc.tcp://a:1"}, known[0].URLs)
}
