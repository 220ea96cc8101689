// Package opcua keeps a session with an OPC UA server and monitors nodes of it.
package opcua

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/gopcua/opcua/ua"

	"akri.sh/deploy/samples/opcua-broker/internal/values"
)

// Settings of a session.
type Settings struct {
	// URL of the server: opc.tcp://HOST:PORT[/PATH].
	URL string
	// ApplicationURI that the certificate of the server must have. Empty means that of the
	// endpoint.
	ApplicationURI string
	// Mode is None, Sign or SignAndEncrypt.
	Mode string
	// Policy is the name of a security policy. Empty means the best one that the server has.
	Policy string
	// PKI has the certificates, for the modes Sign and SignAndEncrypt.
	PKI PKI
	// Username is empty for anonymous sessions. Password returns the current password.
	Username string
	Password func() (string, error)
	// AllowPlainText allows to send the password where others could read it.
	AllowPlainText bool
	// Interval is how often the server samples the nodes and sends changes.
	Interval time.Duration
	// Nodes to monitor.
	Nodes []values.Node
}

// Pauses between sessions.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
	// refusedPause follows if the server refuses the user. Many servers lock accounts after three
	// to ten failures in a quarter of an hour.
	refusedPause = 15 * time.Minute
	// credentialsInterval is how often the broker then looks for another password.
	credentialsInterval = 5 * time.Second
)

// errNotConnected is the state before the first session.
var errNotConnected = errors.New("no session with the OPC UA server yet")

// Client keeps a session.
type Client struct {
	settings Settings
	store    *values.Store
	log      *slog.Logger
	observe  func(error)

	mu    sync.Mutex
	state error // nil while a session is open and the server monitors a node
}

// New returns a Client that stores the values of the nodes. observe gets the result of each attempt
// to open a session, nil for success.
func New(settings Settings, store *values.Store, log *slog.Logger, observe func(error)) *Client {
	return &Client{settings: settings, store: store, log: log, observe: observe, state: errNotConnected}
}

// Ready returns nil while the server monitors at least one node, or else the reason.
func (c *Client) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *Client) setState(state error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = state
}

// Run keeps a session until ctx ends. A server that is away is not an error.
func (c *Client) Run(ctx context.Context) {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = firstPause, maxPause
	for {
		began := time.Now()
		err := c.runSession(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxPause { // a session that ends at once is a failure, too
			pauses.Reset()
		}
		c.lost(err)
		if refused := new(refusedError); errors.As(err, &refused) {
			c.awaitCredentials(ctx, refused.password)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pauses.NextBackOff()):
		}
	}
}

// runSession opens a session and returns why it ended. gopcua panics if the server sends some
// unexpected certificates.
func (c *Client) runSession(ctx context.Context) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("the server sent an invalid response: %v", problem)
		}
	}()
	session, err := open(ctx, c.settings)
	if err == nil {
		defer session.close(ctx)
		err = session.subscribe(ctx)
	}
	c.observe(err)
	if err != nil {
		return err
	}
	c.log.Info("session opened", "server", c.settings.URL, "mode", session.mode, "policy", session.policy)
	return c.monitor(ctx, session)
}

// lost makes the values bad, because nothing shows whether they still hold. It logs a reason once.
func (c *Client) lost(err error) {
	before := c.Ready()
	c.setState(err)
	if before == nil || before.Error() != err.Error() {
		c.log.Warn("no session with the OPC UA server", "server", c.settings.URL, "error", err)
	}
	for i, node := range c.settings.Nodes {
		c.store.SetBad(i, node, ua.StatusBadNotConnected, "")
	}
}

// refusedError is the error of a server that refuses the user.
type refusedError struct {
	username, password string
	status             error
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the server refused the user %q: %v; check OPCUA_USERNAME and OPCUA_PASSWORD (next attempt after %s, or when the password changes)",
		e.username, e.status, refusedPause)
}

func (e *refusedError) Unwrap() error { return e.status }

// awaitCredentials waits until the password is another one, or for a time that does not lock the
// account.
func (c *Client) awaitCredentials(ctx context.Context, refused string) {
	ctx, cancel := context.WithTimeout(ctx, refusedPause)
	defer cancel()
	ticker := time.NewTicker(credentialsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if password, err := c.settings.Password(); err == nil && password != refused {
				return
			}
		}
	}
}
