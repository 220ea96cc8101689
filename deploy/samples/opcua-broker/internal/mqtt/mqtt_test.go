package mqtt_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/stretchr/testify/require"

	"akri.sh/deploy/samples/opcua-broker/internal/mqtt"
	"akri.sh/deploy/samples/opcua-broker/internal/values"
)

const (
	patience = 30 * time.Second
	password = "secret-1"
)

// mosquitto is the MQTT broker of Debian's package, with TLS and one user.
type mosquitto struct {
	t          *testing.T
	config, ca string
	address    string
	roots      *x509.CertPool
	process    *exec.Cmd
}

func newMosquitto(t *testing.T) *mosquitto {
	t.Helper()
	directory := t.TempDir()
	m := &mosquitto{t: t, config: filepath.Join(directory, "mosquitto.conf"), ca: filepath.Join(directory, "ca.pem"), address: freeAddress(t)}
	key := filepath.Join(directory, "key.pem")
	m.roots = writeCertificate(t, m.ca, key)
	users := filepath.Join(directory, "users")
	output, err := exec.Command("mosquitto_passwd", "-c", "-b", users, "broker", password).CombinedOutput()
	require.NoError(t, err, "%s: install the Debian package mosquitto", output)
	_, port, err := net.SplitHostPort(m.address)
	require.NoError(t, err)
	config := fmt.Sprintf("listener %s 127.0.0.1\ncertfile %s\nkeyfile %s\npassword_file %s\nallow_anonymous false\nuser root\n", port, m.ca, key, users)
	require.NoError(t, os.WriteFile(m.config, []byte(config), 0o600))
	t.Cleanup(m.stop)
	return m
}

func (m *mosquitto) start() {
	m.t.Helper()
	m.process = exec.Command("mosquitto", "-c", m.config)
	m.process.Stdout, m.process.Stderr = m.t.Output(), m.t.Output()
	require.NoError(m.t, m.process.Start())
	eventually(m.t, "mosquitto", func() bool {
		conn, err := net.Dial("tcp", m.address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func (m *mosquitto) stop() {
	if m.process == nil {
		return
	}
	_ = m.process.Process.Kill()
	_ = m.process.Wait()
	m.process = nil
}

// settings returns those of a publisher.
func (m *mosquitto) settings(password string) mqtt.Settings {
	return mqtt.Settings{
		URL: &url.URL{Scheme: "mqtts", Host: m.address}, Topic: "plant/boiler", ClientID: "test", CAFile: m.ca,
		Username: "broker", Password: func() (string, error) { return password, nil },
	}
}

// subscribe returns the messages of all topics.
func (m *mosquitto) subscribe(id string) <-chan *paho.Publish {
	m.t.Helper()
	conn, err := tls.Dial("tcp", m.address, &tls.Config{RootCAs: m.roots})
	require.NoError(m.t, err)
	messages := make(chan *paho.Publish, 10_000)
	client := paho.NewClient(paho.ClientConfig{
		ClientID: id, Conn: packets.NewThreadSafeConn(conn),
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(received paho.PublishReceived) (bool, error) {
			messages <- received.Packet
			return true, nil
		}},
	})
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	_, err = client.Connect(ctx, &paho.Connect{
		ClientID: id, CleanStart: true, KeepAlive: 30,
		UsernameFlag: true, Username: "broker", PasswordFlag: true, Password: []byte(password),
	})
	require.NoError(m.t, err)
	_, err = client.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "#", QoS: 1}}})
	require.NoError(m.t, err)
	m.t.Cleanup(func() { _ = conn.Close() })
	return messages
}

// publisher is one that runs until the test ends.
type publisher struct {
	*mqtt.Publisher

	sent, dropped atomic.Int64
	log           *strings.Builder
}

func run(t *testing.T, settings mqtt.Settings) *publisher {
	t.Helper()
	p := &publisher{log: &strings.Builder{}}
	p.Publisher = mqtt.New(settings, slog.New(slog.NewTextHandler(p.log, nil)), func(result mqtt.Result) {
		if result == mqtt.Sent {
			p.sent.Add(1)
		} else {
			p.dropped.Add(1)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NotContains(t, p.log.String(), password)
	})
	return p
}

func value(i int) values.Value {
	return values.Value{Name: "temperature", NodeID: "i=1", Status: "Good", Quality: values.Good, Type: "Int32", Value: i}
}

// number returns the value of the next message.
func number(t *testing.T, messages <-chan *paho.Publish) int {
	t.Helper()
	select {
	case message := <-messages:
		require.Equal(t, "plant/boiler/temperature", message.Topic)
		var content struct{ Value int }
		require.NoError(t, json.Unmarshal(message.Payload, &content))
		return content.Value
	case <-time.After(patience):
		require.Fail(t, "no message")
		return 0
	}
}

// TestPublish publishes before, while and after an MQTT broker is away.
func TestPublish(t *testing.T) {
	broker := newMosquitto(t)
	settings := broker.settings(password)
	settings.Retain = true
	p := run(t, settings)

	// The broker is away. The queue keeps the latest values and delays nothing.
	const length = 1000
	began := time.Now()
	for i := range 5 * length {
		p.Publish(value(i))
	}
	require.Less(t, time.Since(began), 5*time.Second)
	require.InDelta(t, 4*length, p.dropped.Load(), 1) // the one that is being sent is not in the queue
	require.False(t, p.Connected())

	broker.start()
	messages := broker.subscribe("first")
	for previous := -1; previous != 5*length-1; {
		next := number(t, messages)
		require.Greater(t, next, previous)
		previous = next
	}
	require.True(t, p.Connected())

	// New subscribers get the latest value.
	retained := broker.subscribe("second")
	require.Equal(t, 5*length-1, number(t, retained))

	broker.stop()
	eventually(t, "lost connection", func() bool { return !p.Connected() })
	p.Publish(value(-1))
	broker.start()
	messages = broker.subscribe("third")
	require.Equal(t, -1, number(t, messages))
}

// TestSlowBroker checks that an MQTT broker that does not respond delays nothing.
func TestSlowBroker(t *testing.T) {
	address, connections := listen(t, func(net.Conn) {})
	p := run(t, mqtt.Settings{URL: &url.URL{Scheme: "mqtt", Host: address}, Topic: "t", ClientID: "c"})
	eventually(t, "connection", func() bool { return connections.Load() == 1 })
	began := time.Now()
	for i := range 5000 {
		p.Publish(value(i))
	}
	require.Less(t, time.Since(began), 5*time.Second)
	require.Zero(t, p.sent.Load())
}

// TestWrongPassword checks that a wrong password is not sent again soon.
func TestWrongPassword(t *testing.T) {
	const badCredentials = 0x86
	address, connections := listen(t, func(conn net.Conn) {
		_, _ = packets.ReadPacket(conn)
		_, _ = (&packets.Connack{ReasonCode: badCredentials, Properties: &packets.Properties{}}).WriteTo(conn)
	})
	run(t, mqtt.Settings{
		URL: &url.URL{Scheme: "mqtt", Host: address}, Topic: "t", ClientID: "c",
		Username: "u", Password: func() (string, error) { return password, nil },
	})
	eventually(t, "connection", func() bool { return connections.Load() == 1 })
	<-time.After(4 * time.Second) // longer than the first pauses after other failures
	require.EqualValues(t, 1, connections.Load())
}

// TestWrongCertificate checks that the password is not sent to another MQTT broker.
func TestWrongCertificate(t *testing.T) {
	var received atomic.Int64
	directory := t.TempDir()
	writeCertificate(t, filepath.Join(directory, "ca.pem"), filepath.Join(directory, "key.pem"))
	writeCertificate(t, filepath.Join(directory, "other.pem"), filepath.Join(directory, "other-key.pem"))
	certificate, err := tls.LoadX509KeyPair(filepath.Join(directory, "other.pem"), filepath.Join(directory, "other-key.pem"))
	require.NoError(t, err)
	address, connections := listen(t, func(conn net.Conn) {
		n, _ := io.Copy(io.Discard, tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{certificate}}))
		received.Add(n)
	})
	run(t, mqtt.Settings{
		URL: &url.URL{Scheme: "mqtts", Host: address}, Topic: "t", ClientID: "c", CAFile: filepath.Join(directory, "ca.pem"),
		Username: "u", Password: func() (string, error) { return password, nil },
	})
	eventually(t, "connections", func() bool { return connections.Load() >= 2 })
	require.Zero(t, received.Load())
}

// listen serves connections until the test ends, and counts them.
func listen(t *testing.T, serve func(net.Conn)) (address string, connections *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	connections = &atomic.Int64{}
	go func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			connections.Add(1)
			t.Cleanup(func() { conn.Close() })
			go serve(conn)
		}
	}()
	return listener.Addr().String(), connections
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		require.True(t, time.Now().Before(deadline), "waiting for %s", what)
		<-time.After(20 * time.Millisecond)
	}
}

// writeCertificate writes a new certificate of 127.0.0.1 and its key.
func writeCertificate(t *testing.T, certificateFile, keyFile string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certificatePEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(certificateFile, certificatePEM, 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificatePEM)
	return roots
}
