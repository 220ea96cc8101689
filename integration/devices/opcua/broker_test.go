package opcua_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"akri.sh/proto/opcuanode"

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/devices/node"
	"akri.sh/integration/devices/opcua"
)

const patience = 30 * time.Second

// thermometer is the variable of upstream Akri's example.
const thermometer = "Thermometer_Temperature"

// TestBrokerValues monitors the nodes of a server, which then changes values, restarts and goes
// away.
func TestBrokerValues(t *testing.T) {
	port := freePorts(t, 1)[0]
	config := opcua.Config{Port: port, URI: "urn:plant", Name: "Plant", Hostname: "127.0.0.1", Nodes: map[string]opcua.Node{
		thermometer: {Type: "UInt32", Value: 71},
		"Open":      {Type: "Boolean", Value: true},
		"Level":     {Type: "Double", Value: 1.5},
		"Text":      {Type: "String", Value: "on"},
		"Samples":   {Type: "Int32", Value: []int{1, 2}},
	}}
	server := start(t, config)[0]
	url := fmt.Sprintf("opc.tcp://127.0.0.1:%d/UA/Test", port)
	limit := memoryLimit(t)
	broker := runBroker(t, map[string]string{
		"GOMEMLIMIT":                 fmt.Sprintf("%.0f", limit), // as the sample sets it
		"OPCUA_DISCOVERY_URL_8120FE": url, "ALLOW_PLAIN_TEXT": "true", "OPCUA_INTERVAL": "100ms",
		"IDENTIFIER": thermometer, "NAMESPACE_INDEX": "2",
		"NODES": "open: ns=2;s=Open\nlevel: nsu=http://akri.sh/test;s=Level\ntext: ns=2;s=Text\n" +
			"samples: ns=2;s=Samples\nmissing: ns=2;s=Missing\nnowhere: nsu=http://nowhere;i=1",
	})
	broker.await("71", thermometer)
	broker.await("true", "open")
	broker.await("1.5", "level")
	broker.await(`"on"`, "text")
	broker.await("[1,2]", "samples")
	require.Equal(t, http.StatusOK, broker.status("/healthz"))

	// Nodes that the server does not have name their setting and do not affect others.
	for name, reason := range map[string]string{"missing": "NODES, line 5: the server does not monitor ns=2;s=Missing: ", "nowhere": "NODES, line 6: "} {
		value := broker.value(name)
		require.Equal(t, "BadNodeIDUnknown", value.Status)
		require.Contains(t, value.Error, reason)
	}

	// Changes arrive, also those of the status, and in the metrics.
	require.NoError(t, opcua.Set(server, thermometer, 90, ""))
	require.NoError(t, opcua.Set(server, "Level", 2.25, "UncertainInitialValue"))
	require.NoError(t, opcua.Set(server, "Open", false, "BadSensorFailure"))
	broker.await("90", thermometer)
	broker.await("2.25", "level")
	broker.await("", "open")
	require.Equal(t, "uncertain", broker.value("level").Quality)
	require.Equal(t, "BadSensorFailure", broker.value("open").Status)
	metrics := broker.get("/metrics")
	require.Contains(t, metrics, `akri_opcua_value{node="Thermometer_Temperature"} 90`)
	require.Contains(t, metrics, `akri_opcua_value{node="level"} 2.25`)
	require.NotContains(t, metrics, `akri_opcua_value{node="open"}`, "a bad value is not exported")
	require.Contains(t, metrics, `akri_opcua_quality{node="open",quality="bad"} 1`)
	require.InDelta(t, time.Now().Unix(), metric(t, metrics, `akri_opcua_source_timestamp_seconds{node="level"}`), 60)

	// Upstream Akri's clients get the node of IDENTIFIER.
	response, err := broker.getValue()
	require.NoError(t, err)
	require.EqualValues(t, 90, response.GetValue())
	require.Equal(t, url, response.GetOpcuaServer())

	// Values of any size are bounded, and the other nodes go on.
	require.NoError(t, opcua.Set(server, "Text", strings.Repeat("x", 1<<20), ""))
	require.NoError(t, opcua.Set(server, "Samples", make([]int, 60_000), ""))
	require.NoError(t, opcua.Set(server, thermometer, 91, ""))
	broker.await("91", thermometer)
	eventually(t, "values that are cut off", func() bool { return broker.value("text").Truncated && broker.value("samples").Truncated })
	require.Less(t, len(broker.get("/values")), 20_000)
	require.Less(t, metric(t, broker.get("/metrics"), "process_resident_memory_bytes"), limit)

	// A server that is away is reported and does not end the broker. Nothing is served for it.
	server.Stop()
	eventually(t, "a broker that is not ready", func() bool { return broker.status("/healthz") == http.StatusServiceUnavailable })
	broker.await("", thermometer)
	require.Equal(t, "BadNotConnected", broker.value(thermometer).Status)
	require.Contains(t, broker.get("/metrics"), "akri_opcua_connected 0")
	_, err = broker.getValue()
	require.Equal(t, codes.Unavailable, status.Code(err), err)

	// After a restart the nodes are monitored again.
	config.Nodes = maps.Clone(config.Nodes)
	config.Nodes[thermometer] = opcua.Node{Type: "UInt32", Value: 20}
	config.Nodes["Missing"] = opcua.Node{Type: "String", Value: "found"}
	restarted := start(t, config)[0]
	broker.await("20", thermometer)
	broker.await(`"found"`, "missing")
	require.NoError(t, opcua.Set(restarted, thermometer, 21, ""))
	broker.await("21", thermometer)
	require.Equal(t, http.StatusOK, broker.status("/healthz"))
}

// TestBrokerSecurity connects with each security, and is refused where either side must refuse.
func TestBrokerSecurity(t *testing.T) {
	ports := freePorts(t, 2)
	directory := t.TempDir()
	authority := newAuthority(t, "Plant CA")
	serverCertificate := application(t, "Plant", "urn:plant", authority)
	serverFiles := serverCertificate.write(t, directory, "server")
	// The server trusts any client that signs its certificate itself, and no other authorities.
	client := application(t, "Broker", "urn:broker", nil)
	nodes := map[string]opcua.Node{thermometer: {Type: "UInt32", Value: 71}}
	servers := start(t, opcua.Config{
		Port: ports[0], URI: "urn:plant", Name: "Plant", Hostname: "127.0.0.1", Nodes: nodes,
		CertificateFile: serverFiles.certificate, PrivateKeyFile: serverFiles.key,
		Users: map[string]string{"operator": "secret-1", "engineer": "secret-1"},
	}, opcua.Config{
		Port: ports[1], URI: "urn:plant", Name: "Plant", Hostname: "127.0.0.1", Nodes: nodes,
		CertificateFile: serverFiles.certificate, PrivateKeyFile: serverFiles.key, RejectUnknown: true,
	})
	url := fmt.Sprintf("opc.tcp://127.0.0.1:%d/UA/Test", ports[0])
	pki := func(name string, trusted ...[]byte) string {
		return client.writePKI(t, filepath.Join(directory, name), trusted...)
	}
	trusting := pki("trusting", authority.der)
	common := map[string]string{
		"OPCUA_DISCOVERY_URL": url, "ALLOW_PLAIN_TEXT": "true", "OPCUA_INTERVAL": "100ms",
		"NODES": "temperature: ns=2;s=" + thermometer, "OPCUA_PKI_DIRECTORY": trusting,
		"OPCUA_USERNAME": "operator", "OPCUA_PASSWORD": "secret-1",
	}
	with := func(changes map[string]string) map[string]string {
		environment := maps.Clone(common)
		maps.Copy(environment, changes)
		return environment
	}

	const encrypted, aes256 = "SignAndEncrypt", "Aes256_Sha256_RsaPss"
	for name, c := range map[string]struct {
		environment  map[string]string
		mode, policy string // of the server's session
	}{
		// The most secure endpoint is the default, because there is a certificate.
		"default":                            {nil, encrypted, aes256},
		"Sign":                               {map[string]string{"OPCUA_SECURITY_MODE": "Sign"}, "Sign", aes256},
		"Basic256Sha256":                     {map[string]string{"OPCUA_SECURITY_POLICY": "Basic256Sha256"}, encrypted, "Basic256Sha256"},
		"Aes128_Sha256_RsaOaep":              {map[string]string{"OPCUA_SECURITY_POLICY": "Aes128_Sha256_RsaOaep"}, encrypted, "Aes128_Sha256_RsaOaep"},
		"Aes256_Sha256_RsaPss":               {map[string]string{"OPCUA_SECURITY_POLICY": aes256}, encrypted, aes256},
		"the certificate of the server":      {map[string]string{"OPCUA_PKI_DIRECTORY": pki("pinned", serverCertificate.der)}, encrypted, aes256},
		"a password that others could read":  {map[string]string{"OPCUA_SECURITY_MODE": "None", "OPCUA_ALLOW_PLAIN_TEXT": "true"}, "None", "None"},
		"the URI that was found":             {map[string]string{"OPCUA_APPLICATION_URI": "urn:plant"}, encrypted, aes256},
		"the key of upstream Akri's brokers": {map[string]string{"OPCUA_PKI_DIRECTORY": client.writePFX(t, filepath.Join(directory, "pfx"), authority.der)}, encrypted, aes256},
	} {
		t.Run(name, func(t *testing.T) {
			broker := runBroker(t, with(c.environment))
			broker.await("71", "temperature")
			require.NotContains(t, broker.logs(), "secret-1")
			require.Equal(t, c.mode+" http://opcfoundation.org/UA/SecurityPolicy#"+c.policy, line(t, servers[0], "session "))
		})
	}

	other := newAuthority(t, "Plant CA") // with the same name
	for name, c := range map[string]struct {
		environment map[string]string
		reason      string
	}{
		"certificate of another authority": {map[string]string{"OPCUA_PKI_DIRECTORY": pki("other", other.der)}, "is not trusted"},
		"no trusted certificates":          {map[string]string{"OPCUA_PKI_DIRECTORY": pki("none")}, "is not trusted"},
		"revoked certificate": {map[string]string{"OPCUA_PKI_DIRECTORY": authority.revoke(t, pki("revoked", authority.der), serverCertificate)},
			"is revoked by"},
		"certificate of another server": {map[string]string{"OPCUA_APPLICATION_URI": "urn:other"}, `is that of ["urn:plant"], not of "urn:other"`},
		"password without encryption":   {map[string]string{"OPCUA_SECURITY_MODE": "None"}, "set OPCUA_ALLOW_PLAIN_TEXT=true"},
		"no user":                       {map[string]string{"OPCUA_USERNAME": "", "OPCUA_PASSWORD": ""}, "set OPCUA_USERNAME and OPCUA_PASSWORD"},
		"policy that the server lacks":  {map[string]string{"OPCUA_SECURITY_POLICY": "Basic128Rsa15"}, "the server has no endpoint with this mode and the policy Basic128Rsa15, it has: "},
		"certificate of the broker": {map[string]string{"OPCUA_DISCOVERY_URL": strings.Replace(url, strconv.Itoa(ports[0]), strconv.Itoa(ports[1]), 1), "OPCUA_USERNAME": "", "OPCUA_PASSWORD": ""},
			"the server may not trust the certificate of this broker"},
	} {
		t.Run(name, func(t *testing.T) {
			broker := runBroker(t, with(c.environment))
			broker.awaitError(c.reason)
			require.Equal(t, http.StatusServiceUnavailable, broker.status("/healthz"))
			require.NotContains(t, broker.logs(), "secret-1")
		})
	}

	// A wrong password is sent once, until another one is mounted.
	t.Run("wrong password", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "password")
		require.NoError(t, os.WriteFile(file, []byte("secret-2\n"), 0o600))
		broker := runBroker(t, with(map[string]string{"OPCUA_USERNAME": "engineer", "OPCUA_PASSWORD": "", "OPCUA_PASSWORD_FILE": file}))
		broker.awaitError(`the server refused the user "engineer"`)
		<-time.After(12 * time.Second) // longer than the pauses between other attempts, and than the one for another password
		require.InDelta(t, 1, metric(t, broker.get("/metrics"), `akri_opcua_session_attempts_total{result="failure"}`), 0)
		require.NoError(t, os.WriteFile(file, []byte("secret-1\n"), 0o600))
		broker.await("71", "temperature")
		require.Equal(t, []string{"refused", "accepted"}, logins(t, servers[0], 2))
		require.NotContains(t, broker.logs(), "secret-")
	})
}

// logins returns the next attempts of the user engineer.
func logins(t *testing.T, server *node.Program, n int) (all []string) {
	t.Helper()
	for range n {
		all = append(all, line(t, server, "login engineer "))
	}
	return all
}

// line returns the rest of the next line of a server with the prefix.
func line(t *testing.T, server *node.Program, prefix string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	rest, err := server.Await(ctx, prefix)
	require.NoError(t, err)
	return rest
}

// memoryLimit returns that of the broker in the sample opcua.yaml, in bytes.
func memoryLimit(t *testing.T) float64 {
	t.Helper()
	root, err := binaries.Root()
	require.NoError(t, err)
	sample, err := os.ReadFile(filepath.Join(root, "deploy/samples/opcua.yaml"))
	require.NoError(t, err)
	match := regexp.MustCompile(`(?s) limits:.*? memory: (\d+)Mi\n`).FindSubmatch(sample)
	require.NotNil(t, match)
	limit, err := strconv.Atoi(string(match[1]))
	require.NoError(t, err)
	return float64(limit << 20)
}

// metric returns a value of the text format.
func metric(t *testing.T, metrics, name string) float64 {
	t.Helper()
	match := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(metrics)
	require.NotNil(t, match, name)
	value, err := strconv.ParseFloat(match[1], 64)
	require.NoError(t, err)
	return value
}

// runningBroker is a process of the broker.
type runningBroker struct {
	t       *testing.T
	address string
	output  *lockedBuffer
}

// lockedBuffer embeds no buffer: its other methods, which io.Copy uses, do not lock.
type lockedBuffer struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content.String()
}

var buildBroker = sync.OnceValues(func() (string, error) {
	root, err := binaries.Root()
	if err != nil {
		return "", err
	}
	directory, err := os.MkdirTemp("", "opcua-broker-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(directory, "opcua-broker")
	build := exec.Command("go", "build", "-o", binary, "./cmd/opcua-broker")
	build.Dir = filepath.Join(root, "deploy", "samples", "opcua-broker")
	if output, err := build.CombinedOutput(); err != nil {
		return "", errors.Join(err, errors.New(string(output)))
	}
	return binary, nil
})

// runBroker runs the broker until the test ends.
func runBroker(t *testing.T, environment map[string]string) *runningBroker {
	t.Helper()
	binary, err := buildBroker()
	require.NoError(t, err)
	broker := &runningBroker{t: t, address: fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0]), output: &lockedBuffer{}}
	command := exec.Command(binary)
	command.Env = []string{"ADDRESS=" + broker.address, "OPCUA_PKI_DIRECTORY=" + t.TempDir()}
	for name, value := range environment {
		command.Env = append(command.Env, name+"="+value)
	}
	command.Stdout, command.Stderr = broker.output, broker.output
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		if err := command.Wait(); err != nil {
			t.Errorf("the broker did not stop: %v", err)
		}
		if t.Failed() {
			t.Log(broker.logs())
		}
	})
	eventually(t, "a broker that serves", func() bool { return broker.status("/healthz") != 0 })
	return broker
}

func (b *runningBroker) logs() string { return b.output.String() }

func (b *runningBroker) fetch(path string) (code int, body string) {
	response, err := http.Get("http://" + b.address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

func (b *runningBroker) status(path string) int {
	code, _ := b.fetch(path)
	return code
}

func (b *runningBroker) get(path string) string {
	b.t.Helper()
	code, body := b.fetch(path)
	require.Equal(b.t, http.StatusOK, code, body)
	return body
}

type brokerValue struct {
	Status, Quality, Error string
	Value                  json.RawMessage
	Truncated              bool
}

func (b *runningBroker) value(name string) (value brokerValue) {
	b.t.Helper()
	require.NoError(b.t, json.Unmarshal([]byte(b.get("/values/"+name)), &value))
	return value
}

// await waits until the value of a node is JSON, or absent for an empty text.
func (b *runningBroker) await(want, name string) {
	b.t.Helper()
	eventually(b.t, name+" = "+want, func() bool { return string(b.value(name).Value) == want })
}

// awaitError waits until /values states why there is no session.
func (b *runningBroker) awaitError(reason string) {
	b.t.Helper()
	eventually(b.t, reason, func() bool {
		var values struct{ Error string }
		require.NoError(b.t, json.Unmarshal([]byte(b.get("/values")), &values))
		return strings.Contains(values.Error, reason)
	})
}

// eventually waits until a condition, which may fail the test, is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		require.True(t, time.Now().Before(deadline), "waiting for %s", what)
		<-time.After(20 * time.Millisecond)
	}
}

// getValue calls the broker as the clients of upstream Akri do.
func (b *runningBroker) getValue() (*opcuanode.ValueResponse, error) {
	conn, err := grpc.NewClient(b.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b.t, err)
	defer conn.Close()
	return opcuanode.NewOpcuaNodeClient(conn).GetValue(b.t.Context(), &opcuanode.ValueRequest{})
}
