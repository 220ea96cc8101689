// Package mqtt publishes values to an MQTT broker. One that is away delays nothing: the latest
// values wait in a queue of limited length.
package mqtt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"

	"akri.sh/deploy/samples/opcua-broker/internal/values"
)

// Settings of the connection.
type Settings struct {
	// URL is mqtt://HOST[:PORT], or mqtts://HOST[:PORT] for TLS.
	URL *url.URL
	// Topic of a value is Topic/NAME.
	Topic string
	// ClientID identifies the broker. MQTT allows one connection for each.
	ClientID string
	// Username is empty for none. Password returns the current password.
	Username string
	Password func() (string, error)
	// CAFile has the authorities of the MQTT broker. Empty means those of the system.
	CAFile string
	// CertFile and KeyFile are the client's certificate, or empty.
	CertFile, KeyFile string
	// Retain makes the MQTT broker keep the last value of each topic for new subscribers.
	Retain bool
}

const (
	// queueLength is the number of values that wait. If there are more, the oldest ones are
	// dropped.
	queueLength = 1000
	// publishTimeout is the time in which the MQTT broker must acknowledge a value.
	publishTimeout = 10 * time.Second
	// attempts is how often a value is sent.
	attempts       = 3
	connectTimeout = 10 * time.Second
	// keepAlive is how often the connection is checked, in seconds.
	keepAlive = 20

	firstPause = time.Second
	maxPause   = 30 * time.Second
	// refusedPause follows if the MQTT broker refuses the user, who could be locked out.
	refusedPause = 5 * time.Minute
	stopTimeout  = time.Second
)

// Result of a value.
type Result string

// The results.
const (
	Sent    Result = "sent"
	Dropped Result = "dropped"
)

// Results are all of them.
var Results = []Result{Sent, Dropped}

// Publisher publishes values.
type Publisher struct {
	settings Settings
	log      *slog.Logger
	count    func(Result)

	queue     chan values.Value
	connected atomic.Bool
	refused   atomic.Bool
}

// New returns a Publisher. count gets the result of each value.
func New(settings Settings, log *slog.Logger, count func(Result)) *Publisher {
	return &Publisher{settings: settings, log: log, count: count, queue: make(chan values.Value, queueLength)}
}

// Publish adds a value to the queue. It never blocks. Only one goroutine at a time may call it.
func (p *Publisher) Publish(value values.Value) {
	for {
		select {
		case p.queue <- value:
			return
		default:
		}
		select {
		case <-p.queue:
			p.count(Dropped)
		default: // Run has taken one
		}
	}
}

// Connected returns whether there is a connection with the MQTT broker.
func (p *Publisher) Connected() bool { return p.connected.Load() }

// Run publishes the values of the queue until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	tlsConfig, err := p.settings.tlsConfig()
	if err != nil {
		return err
	}
	manager, err := autopaho.NewConnection(ctx, autopaho.ClientConfig{
		ServerUrls: []*url.URL{p.settings.URL}, TlsCfg: tlsConfig,
		KeepAlive: keepAlive, CleanStartOnInitialConnection: true,
		ConnectTimeout: connectTimeout, ReconnectBackoff: p.pause,
		ConnectPacketBuilder: p.authenticate,
		OnConnectionUp:       p.up,
		OnConnectionDown:     p.down,
		OnConnectError:       p.failed,
		ClientConfig:         paho.ClientConfig{ClientID: p.settings.ClientID},
	})
	if err != nil {
		return fmt.Errorf("configure MQTT: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			select {
			case <-manager.Done():
			case <-stopping.Done():
			}
			return nil
		case value := <-p.queue:
			p.send(ctx, manager, value)
		}
	}
}

// send publishes a value. It waits for the connection as long as necessary, but one value that the
// MQTT broker does not take must not stop those after it.
func (p *Publisher) send(ctx context.Context, manager *autopaho.ConnectionManager, value values.Value) {
	payload, err := json.Marshal(value)
	if err != nil {
		p.log.Error("encoding a value failed", "node", value.Name, "error", err)
		return
	}
	message := &paho.Publish{Topic: p.settings.Topic + "/" + value.Name, Payload: payload, QoS: 1, Retain: p.settings.Retain}
	for range attempts {
		if manager.AwaitConnection(ctx) != nil {
			return
		}
		publishing, cancel := context.WithTimeout(ctx, publishTimeout)
		_, err = manager.Publish(publishing, message)
		cancel()
		if err == nil {
			p.count(Sent)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(firstPause):
		}
	}
	p.count(Dropped)
	p.log.Warn("the MQTT broker did not accept a value", "topic", message.Topic, "error", err)
}

func (p *Publisher) up(*autopaho.ConnectionManager, *paho.Connack) {
	p.connected.Store(true)
	p.refused.Store(false)
	p.log.Info("connected to the MQTT broker", "url", p.settings.URL.Redacted())
}

func (p *Publisher) down() (reconnect bool) {
	p.connected.Store(false)
	p.log.Warn("the connection with the MQTT broker was lost", "url", p.settings.URL.Redacted())
	return true
}

func (p *Publisher) failed(err error) {
	const badCredentials, notAuthorized = 0x86, 0x87 // MQTT 5, 3.2.2.2
	refused := new(autopaho.ConnackError)
	p.refused.Store(errors.As(err, &refused) && (refused.ReasonCode == badCredentials || refused.ReasonCode == notAuthorized))
	if p.refused.Load() {
		p.log.Error("the MQTT broker refused the user: check MQTT_USERNAME and MQTT_PASSWORD", "url", p.settings.URL.Redacted(), "retry_in", refusedPause)
		return
	}
	p.log.Warn("connecting to the MQTT broker failed", "url", p.settings.URL.Redacted(), "error", err)
}

// pause is the time before an attempt to connect.
func (p *Publisher) pause(attempt int) time.Duration {
	switch {
	case attempt == 0:
		return 0
	case p.refused.Load():
		return refusedPause
	}
	return min(maxPause, firstPause<<min(attempt-1, 10))
}

// authenticate reads the password at each attempt, because a mounted Secret can change.
func (p *Publisher) authenticate(packet *paho.Connect, _ *url.URL) (*paho.Connect, error) {
	if p.settings.Username == "" {
		return packet, nil
	}
	password, err := p.settings.Password()
	if err != nil {
		return nil, err
	}
	packet.UsernameFlag, packet.Username = true, p.settings.Username
	packet.PasswordFlag, packet.Password = true, []byte(password)
	return packet, nil
}

func (s Settings) tlsConfig() (*tls.Config, error) {
	if s.URL.Scheme != "mqtts" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.URL.Hostname()}
	if s.CAFile != "" {
		bundle, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("MQTT_CA_FILE: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, fmt.Errorf("MQTT_CA_FILE: %s has no certificate in PEM", s.CAFile)
		}
	}
	if s.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile); err != nil {
			return nil, fmt.Errorf("MQTT_CERT_FILE and MQTT_KEY_FILE: %w", err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile) // it may be renewed
			return &certificate, err
		}
	}
	return config, nil
}
