// Package attacks has programs that attack a running mesh as a Pod or as a stolen node can. They
// run until their context ends, and count what they did. The tests run them while honest clients
// work.
package attacks

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Results are the numbers of calls of an attack by their results.
type Results struct {
	Webhook map[string]int `json:"webhook"`
	Node    map[string]int `json:"node"`
	// Leaked is the number of responses with data of another node or namespace.
	Leaked int64 `json:"leaked"`
}

// Counts are the numbers of calls of an attacker by their results.
type Counts struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *Counts) add(attack string, result any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[fmt.Sprintf("%s: %v", attack, result)]++
}

// All returns the numbers by attack and result.
func (c *Counts) All() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Webhook is an attack on the webhook at Address, without credentials.
type Webhook struct {
	Address string
	// Foreign is the name of a Configuration in the namespace Namespace, which no response may
	// contain.
	Foreign, Namespace string
	Counts             Counts
	// Leaked is the number of responses with the namespace.
	Leaked atomic.Int64
}

const (
	webhookPath  = "/validate"
	pause        = 100 * time.Millisecond
	postDuration = 3 * time.Second
	// http2Connections leave some of the connections of an address for the reviews that are sent at
	// the same time.
	http2Connections = 8
	// slowSenders is more than the webhook accepts from an address.
	slowSenders = 200
	// holdDuration is more than the time that the webhook waits for a review.
	holdDuration = 7 * time.Second
	// slowInterval is the time between two bytes of a slow sender.
	slowInterval = 500 * time.Millisecond
)

// forged returns a review of a Configuration with this broker. Its user is one that the attacker
// chose, and another namespace has a Configuration of its name.
func (w *Webhook) forged(brokerPodSpec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1",
	"operation": "CREATE", "namespace": "kube-system", "name": %[1]q, "userInfo": {"username": "system:admin", "groups": ["system:masters"]},
	"object": {"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": {"name": %[1]q},
	"spec": {"discoveryHandler": {"name": "debugEcho"}, "brokerSpec": {"brokerPodSpec": %[2]s}}}}}`, w.Foreign, brokerPodSpec)
}

// Run attacks until ctx ends.
func (w *Webhook) Run(ctx context.Context) {
	var unknown strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&unknown, `"f%d": 1, `, i)
	}
	bodies := map[string][]byte{
		"8 MiB of objects":      []byte(`{"x":[` + strings.Repeat("{},", 8<<20/3) + "{}]}"),
		"8 MiB of lists":        bytes.Repeat([]byte("["), 8<<20),
		"4 MiB of text":         []byte(`{"x":"` + strings.Repeat("x", 4<<20-100) + `"}`),
		"40,000 unknown fields": w.forged(`{"containers": [{` + unknown.String() + `"name": "a"}]}`),
		"40,000 containers":     w.forged(`{"containers": [` + strings.Repeat("{},", 40_000-1) + `{}]}`),
		"a large exponent":      w.forged(`{"containers": [{"name": "a", "resources": {"limits": {"cpu": "1e-999999999"}, "requests": {"cpu": "1e999999999"}}}]}`),
		"a forged user":         w.forged(`{"containers": [{"name": "a"}]}`),
	}

	// Slow senders leave no connection for the other attacks, so they take turns.
	for ctx.Err() == nil {
		phase, cancel := context.WithTimeout(ctx, postDuration)
		var group sync.WaitGroup
		for attack, body := range bodies {
			group.Go(func() { repeat(phase, func() { w.post(phase, attack, body) }) })
		}
		for range http2Connections {
			group.Go(func() { repeat(phase, func() { w.hold(phase, withoutWindow, w.sendWithoutWindow) }) })
		}
		group.Wait()
		cancel()

		phase, cancel = context.WithTimeout(ctx, holdDuration)
		for range slowSenders {
			group.Go(func() { repeat(phase, func() { w.hold(phase, slowReview, w.sendSlowly) }) })
		}
		group.Wait()
		cancel()
	}
}

// repeat attacks until ctx ends.
func repeat(ctx context.Context, attack func()) {
	for ctx.Err() == nil {
		attack()
		wait(ctx, pause)
	}
}

// wait returns after a time, or when ctx has ended.
func wait(ctx context.Context, duration time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(duration):
	}
}

// post sends a review with a connection of its own.
func (w *Webhook) post(ctx context.Context, attack string, body []byte) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+w.Address+webhookPath, bytes.NewReader(body))
	if err != nil {
		w.Counts.add(attack, err)
		return
	}

	response, err := transport.RoundTrip(request)
	if err != nil {
		if ctx.Err() == nil {
			w.Counts.add(attack, "no response")
		}
		return
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		w.Counts.add(attack, "no response")
		return
	}

	if bytes.Contains(text, []byte(w.Namespace)) {
		w.Leaked.Add(1)
	}
	w.Counts.add(attack, response.StatusCode)
}

// Names of attacks that hold a connection.
const (
	withoutWindow = "HTTP/2 with a window of 0"
	slowReview    = "slow review"
)

// hold sends a review and keeps the connection until the webhook closes it.
func (w *Webhook) hold(ctx context.Context, attack string, send func(context.Context, *tls.Conn)) {
	plain, err := new(net.Dialer).DialContext(ctx, "tcp", w.Address)
	if err != nil {
		return
	}
	defer plain.Close()
	stop := context.AfterFunc(ctx, func() { _ = plain.Close() })
	defer stop()

	conn := tls.Client(plain, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	if err := conn.HandshakeContext(ctx); err != nil {
		if ctx.Err() == nil {
			w.Counts.add(attack, "connection refused")
		}
		wait(ctx, slowInterval) // as long as one that is accepted, so that this is no flood of connections
		return
	}

	send(ctx, conn)
	_, _ = io.Copy(io.Discard, conn)
	if ctx.Err() == nil {
		w.Counts.add(attack, "connection closed")
	}
}

// sendSlowly sends a review byte by byte.
func (w *Webhook) sendSlowly(ctx context.Context, conn *tls.Conn) {
	if _, err := io.WriteString(conn, "POST "+webhookPath+" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"); err != nil {
		return
	}
	for ctx.Err() == nil {
		if _, err := io.WriteString(conn, " "); err != nil {
			return
		}
		wait(ctx, slowInterval)
	}
}

// sendWithoutWindow sends a complete review with HTTP/2 and lets the webhook send no byte of its
// response: a preface, a frame SETTINGS with INITIAL_WINDOW_SIZE=0, and the frames HEADERS
// (":method POST", ":scheme https", ":path /validate", ":authority x") and DATA.
func (w *Webhook) sendWithoutWindow(_ context.Context, conn *tls.Conn) {
	w.Counts.add(withoutWindow, "protocol "+conn.ConnectionState().NegotiatedProtocol)
	frame := func(kind, flags, stream byte, payload string) string {
		length := len(payload)
		return string([]byte{byte(length >> 16), byte(length >> 8), byte(length), kind, flags, 0, 0, 0, stream}) + payload
	}
	headers := "\x83\x87\x04" + string([]byte{byte(len(webhookPath))}) + webhookPath + "\x01\x01x"
	review := string(w.forged(`{"containers": [{"name": "a"}]}`))
	_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+frame(4, 0, 0, "\x00\x04\x00\x00\x00\x00")+
		frame(1, 4, 1, headers)+frame(0, 1, 1, review))
}
