package brokercontroller_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"akri.sh/services/broker-controller/internal/admission"
)

// memoryLimit is the limit of the container in the chart.
const memoryLimit = 128 << 20

// webhookProcess is a broker-controller in its own process.
type webhookProcess struct {
	testing.TB

	address string
	pid     int
	// handshakes limits the connections that attackers open at the same time. The race detector
	// makes this process slow, so its own reviews would wait behind hundreds of handshakes.
	handshakes chan struct{}
}

// startWebhookProcess starts one with the memory limit of the chart. The API server does not call
// its webhook: tests send reviews.
func startWebhookProcess(e webhookEnv) *webhookProcess {
	e.Helper()
	binary := filepath.Join(e.TempDir(), "broker-controller")
	output, err := exec.CommandContext(e.Context(), "go", "build", "-o", binary, "./cmd/broker-controller").CombinedOutput()
	require.NoError(e, err, "%s", output)
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a free port
	require.NoError(e, err)
	address := listener.Addr().String()
	require.NoError(e, listener.Close())

	command := exec.CommandContext(e.Context(), binary, "--kubeconfig", kubeconfig(e), "--namespace", e.namespace, "--admin-address=",
		"--webhook-address", address, "--log-level=error")
	command.Env = append(os.Environ(), "GOMEMLIMIT="+strconv.Itoa(memoryLimit))
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(e, command.Start())
	e.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	return &webhookProcess{e, address, command.Process.Pid, make(chan struct{}, 16)}
}

func kubeconfig(e webhookEnv) string {
	file := filepath.Join(e.TempDir(), "kubeconfig")
	require.NoError(e, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.Config().Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: server.Config().BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}

// peak returns the most memory that the process had, without the pages of its binary, which the
// kernel can drop.
func (p *webhookProcess) peak() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	require.NoError(p, err)
	field := func(name string) int {
		kilobytes, err := strconv.Atoi(regexp.MustCompile(name + `:\s+(\d+) kB`).FindStringSubmatch(string(text))[1])
		require.NoError(p, err)
		return kilobytes << 10
	}
	return field("VmHWM") - field("RssFile")
}

func (p *webhookProcess) dial(ctx context.Context, from string) (net.Conn, error) {
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}},
		Config:    &tls.Config{InsecureSkipVerify: true},
	}
	return dialer.DialContext(ctx, "tcp", p.address)
}

// review sends a review over a new connection, as API servers do.
func (p *webhookProcess) review(ctx context.Context, from string, body []byte) (status int, text string, err error) {
	transport := &http.Transport{DisableKeepAlives: true, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return p.dial(ctx, from)
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+p.address+admission.Path, bytes.NewReader(body))
	require.NoError(p, err)
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

// hold sends a part of a review, and waits until the server closes the connection.
func (p *webhookProcess) hold(ctx context.Context, from string, part []byte) error {
	p.handshakes <- struct{}{}
	conn, err := p.dial(ctx, from)
	<-p.handshakes
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	if _, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n%s", admission.Path, part); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}

// reviewOf returns the text of a review of a new Configuration.
func reviewOf(spec string) []byte {
	return []byte(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE",
		"object": {"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": {"name": "a"}, "spec": {` + spec + `}}}}`)
}

// costly are the reviews within the limits that need the most memory.
var costly = map[string][]byte{
	"127.0.2.1": reviewOf(`"brokerSpec": {"brokerPodSpec": {"containers": [` + strings.Repeat(`{"name": "a"},`, 45_000) + `{}]}}`),
	"127.0.2.2": reviewOf(`"brokerSpec": {"brokerPodSpec": {"containers": [{"resources": {"limits": {"cpu": "1` + strings.Repeat("0", 3<<20) + `"}}}]}}`),
}

// Many addresses open connections, and hold those that they get with parts of reviews, and two
// repeat reviews that need much memory. The process stays below its limit, and every review of
// another address is made.
func TestMemoryOfManyAddresses(t *testing.T) {
	const addresses, connections, reviews = 30, 16, 20
	e := newWebhookEnv(t)
	p := startWebhookProcess(e)
	misspelt := reviewOf(`"capasity": 2`)
	e.eventually(func() bool { _, _, err := p.review(t.Context(), "127.0.0.1", misspelt); return err == nil }, "a response")
	idle := p.peak()

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var attack errgroup.Group
	var rounds, made, refused atomic.Int64
	part, large := bytes.Repeat([]byte(" "), 64<<10), bytes.Repeat([]byte(" "), 3<<20)
	attack.Go(func() error {
		for ctx.Err() == nil {
			// The server ends those that it accepts when its time for a request is over.
			var round errgroup.Group
			for i := range 8 {
				round.Go(func() error { return p.hold(ctx, fmt.Sprint("127.0.3.", i+1), large) })
			}
			for i := range addresses * connections {
				round.Go(func() error { return p.hold(ctx, fmt.Sprint("127.0.1.", i%addresses+1), part) })
			}
			if round.Wait() != nil {
				refused.Add(1)
			}
			rounds.Add(1)
		}
		return nil
	})
	for from, body := range costly {
		attack.Go(func() error {
			for ctx.Err() == nil {
				if status, _, err := p.review(ctx, from, body); err == nil && status == http.StatusOK {
					made.Add(1)
				}
			}
			return nil
		})
	}

	began := time.Now()
	for done := 0; done < reviews || rounds.Load() < 2 || made.Load() < 10; done++ {
		status, text, err := p.review(ctx, "127.0.0.1", misspelt)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, text)
		require.Contains(t, text, "capasity")
	}
	stop()
	_ = attack.Wait()
	t.Logf("%d rounds, %d with refused connections, %d costly reviews in %s; %d MiB at most, %d before",
		rounds.Load(), refused.Load(), made.Load(), time.Since(began), p.peak()>>20, idle>>20)
	require.Positive(t, refused.Load())
	require.Less(t, p.peak(), memoryLimit)
}
