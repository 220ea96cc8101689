package opcua

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uacp"
)

// Limits of a session.
const (
	dialTimeout = 5 * time.Second
	// openTimeout is for all requests until the nodes are monitored.
	openTimeout = 20 * time.Second
	// closeTimeout is for the request to close a session.
	closeTimeout = time.Second
	// sessionTimeout is how long the server keeps a session without requests.
	sessionTimeout = time.Minute
	// keepAlive is how long the server may send nothing. It is the time after which a server that
	// lost its power counts as away.
	keepAlive = 10 * time.Second
	// responseGrace is how late a response may be.
	responseGrace = 5 * time.Second
	// requestTimeout is longer than all the others. Contexts end requests before it.
	requestTimeout = 5 * time.Minute
	// maxMessage is the size of a response that the server may send.
	maxMessage = 4 << 20
	bufferSize = 64 << 10
)

// session is an open session. gopcua has subscriptions that reconnect by themselves. Those here end
// with their session, so that every way in which a session is lost has one remedy: a new one, with
// the server's current endpoints and certificates and our current credentials.
type session struct {
	client       *opcua.Client
	settings     Settings
	mode, policy string

	subscription uint32
	// silence is how long the server sends nothing while no value changes.
	silence time.Duration
}

// open opens a session.
func open(ctx context.Context, settings Settings) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	endpoints, err := opcua.GetEndpoints(ctx, settings.URL, transport()...)
	if err != nil {
		return nil, fmt.Errorf("get the endpoints of the server: %w", err)
	}
	endpoint, err := settings.choose(endpoints)
	if err != nil {
		return nil, err
	}
	security, err := settings.secure(endpoint, time.Now())
	if err != nil {
		return nil, err
	}

	client, err := opcua.NewClient(settings.URL, append(transport(), security.channel...)...)
	if err != nil {
		return nil, fmt.Errorf("configure the session: %w", err)
	}
	if err := client.Dial(ctx); err != nil {
		return nil, settings.explain("open a secure channel", err)
	}
	s := &session{client: client, settings: settings}
	s.mode, s.policy = nameOf(endpoint)
	created, err := client.CreateSession(ctx, security.session)
	if err == nil && created == nil {
		err = errors.New("the server has not signed the session with its certificate")
	}
	if err == nil {
		err = client.ActivateSession(ctx, created)
	}
	if err == nil && client.Session() == nil {
		err = errors.New("the session cannot be signed")
	}
	if err != nil {
		s.close(ctx)
		if isRefusal(err) && settings.Username != "" {
			return nil, &refusedError{settings.Username, security.session.AuthPassword, err}
		}
		return nil, settings.explain("open a session", err)
	}
	return s, nil
}

// transport returns the options of all connections. A server that keeps to OPC UA keeps to the
// limits.
func transport() []opcua.Option {
	return []opcua.Option{
		opcua.Dialer(&uacp.Dialer{
			Dialer: &net.Dialer{Timeout: dialTimeout},
			ClientACK: &uacp.Acknowledge{
				ReceiveBufSize: bufferSize, SendBufSize: bufferSize,
				MaxMessageSize: maxMessage, MaxChunkCount: maxMessage / bufferSize,
			},
		}),
		opcua.AutoReconnect(false),
		opcua.RequestTimeout(requestTimeout),
	}
}

func isRefusal(err error) bool {
	for _, status := range []ua.StatusCode{ua.StatusBadUserAccessDenied, ua.StatusBadIdentityTokenRejected, ua.StatusBadIdentityTokenInvalid} {
		if errors.Is(err, status) {
			return true
		}
	}
	return false
}

// explain adds what to do about an error.
func (s Settings) explain(action string, err error) error {
	// A server that does not trust a certificate sends a status or a message, of which gopcua
	// returns only the end of the connection.
	text := err.Error()
	if s.Mode != "None" && (errors.Is(err, io.EOF) || strings.Contains(text, "StatusBadCertificate") || strings.Contains(text, "StatusBadSecurityChecksFailed")) {
		return fmt.Errorf("%s: %w; the server may not trust the certificate of this broker", action, err)
	}
	return fmt.Errorf("%s: %w", action, err)
}

// close closes the session at the server, if that responds.
func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = s.client.Close(ctx)
}

// subscribe creates the subscription.
func (s *session) subscribe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := s.resolveNamespaces(ctx); err != nil {
		return err
	}
	keepAlives := max(1, uint32(keepAlive/s.settings.Interval))
	response, err := send[*ua.CreateSubscriptionResponse](ctx, s.client, &ua.CreateSubscriptionRequest{
		RequestedPublishingInterval: float64(s.settings.Interval.Milliseconds()),
		RequestedMaxKeepAliveCount:  keepAlives,
		RequestedLifetimeCount:      6 * keepAlives, // at least three times as many, OPC 10000-4, 5.13.2
		PublishingEnabled:           true,
	})
	if err != nil {
		return fmt.Errorf("create a subscription: %w", err)
	}
	s.subscription = response.SubscriptionID
	revised := time.Duration(response.RevisedPublishingInterval * float64(time.Millisecond))
	s.silence = min(max(revised, 0)*time.Duration(response.RevisedMaxKeepAliveCount), requestTimeout/2)
	return nil
}

// resolveNamespaces reads the indexes of the namespaces, which can change when the server restarts.
func (s *session) resolveNamespaces(ctx context.Context) error {
	for _, node := range s.settings.Nodes {
		if strings.HasPrefix(node.ID, "nsu=") {
			if err := s.client.UpdateNamespaces(ctx); err != nil {
				return fmt.Errorf("read the namespaces of the server: %w", err)
			}
			break
		}
	}
	return nil
}

// send sends a request and returns its response.
func send[R ua.Response](ctx context.Context, client *opcua.Client, request ua.Request) (response R, err error) {
	err = client.Send(ctx, request, func(received ua.Response) error {
		typed, ok := received.(R)
		if !ok {
			return fmt.Errorf("the server responded with %T", received)
		}
		response = typed
		return nil
	})
	return response, err
}
