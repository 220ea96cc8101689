package soap

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"akri.sh/services/handler-onvif/internal/xmltree"
)

// Client asks devices, not more than a number of them at once.
type Client struct {
	http    *http.Client
	timeout time.Duration
	slots   chan struct{}
	observe func(operation string, err error)
}

// Options of a Client.
type Options struct {
	// Timeout of one question and its answer, authentication included.
	Timeout time.Duration
	// Concurrency is how many questions may be open at once.
	Concurrency int
	// Authorities that certificates of devices must be signed by; nil: certificates are not checked, as cameras sign
	// their own.
	Authorities *x509.CertPool
	// Observe hears of each answer.
	Observe func(operation string, err error)
}

// NewClient starts nothing.
func NewClient(options Options) *Client {
	transport := &http.Transport{
		DialContext: (&net.Dialer{Timeout: options.Timeout}).DialContext,
		// A camera has few connections to give, and a question comes every few seconds at most.
		DisableKeepAlives:      true,
		DisableCompression:     true, // a small answer must stay small
		MaxResponseHeaderBytes: 16 << 10,
		TLSClientConfig: &tls.Config{
			InsecureSkipVerify: options.Authorities == nil, //nolint:gosec // see Options.Authorities
			RootCAs:            options.Authorities,
		},
	}
	return &Client{
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		timeout: options.Timeout,
		slots:   make(chan struct{}, options.Concurrency),
		observe: options.Observe,
	}
}

// Target is a device service.
type Target struct {
	URL string
	// Zone is the interface that a link-local address is on.
	Zone string
	// ClockOffset is how far the device's clock is ahead of ours.
	ClockOffset time.Duration
	// Credentials, or nil.
	Credentials *Credentials
}

// Time asks for the device's time and returns how far its clock is ahead. A device that wants credentials for this,
// against ONVIF's word, is there all the same: then the error is ErrNotAuthorized.
func (c *Client) Time(ctx context.Context, target Target) (time.Duration, error) {
	target.Credentials = nil
	asked := time.Now()
	answer, err := c.ask(ctx, target, GetSystemDateAndTime)
	if err != nil {
		return 0, err
	}
	told, known, err := ParseTime(answer)
	if err != nil || !known {
		return 0, err
	}
	middle := asked.Add(time.Since(asked) / 2)
	return told.Sub(middle).Truncate(time.Second), nil // the device tells whole seconds
}

// Interfaces asks for the device's network interfaces.
func (c *Client) Interfaces(ctx context.Context, target Target) (Interfaces, error) {
	answer, err := c.ask(ctx, target, GetNetworkInterfaces)
	if err != nil {
		return Interfaces{}, err
	}
	return ParseInterfaces(answer)
}

// Information asks how the device is called.
func (c *Client) Information(ctx context.Context, target Target) (Information, error) {
	answer, err := c.ask(ctx, target, GetDeviceInformation)
	if err != nil {
		return Information{}, err
	}
	return ParseInformation(answer)
}

func (c *Client) ask(ctx context.Context, target Target, operation Operation) (answer []byte, err error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.slots }()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	defer func() { c.observe(operation.Name, err) }()
	var token *Token
	if target.Credentials != nil {
		fresh := NewToken(*target.Credentials, time.Now().Add(target.ClockOffset))
		token = &fresh
	}
	response, err := c.post(ctx, target, operation, token, "")
	if err != nil {
		return nil, err
	}
	if response.status == http.StatusUnauthorized && target.Credentials != nil {
		challenge, err := ParseChallenge(response.challenges)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotAuthorized, err)
		}
		// ONVIF: one way of authentication per request.
		authorization := challenge.Answer(*target.Credentials, http.MethodPost, response.path)
		if response, err = c.post(ctx, target, operation, nil, authorization); err != nil {
			return nil, err
		}
	}
	return response.body, response.problem(operation)
}

type response struct {
	status     int
	challenges []string
	path       string
	body       []byte
}

// problem is why the body is not an answer; a fault says more than the status that it came with.
func (r response) problem(operation Operation) error {
	if r.status == http.StatusUnauthorized {
		return ErrNotAuthorized
	}
	_, err := reply(operation, r.body)
	if r.status != http.StatusOK && !errors.Is(err, ErrNotAuthorized) {
		return fmt.Errorf("HTTP status %d", r.status)
	}
	return err
}

func (c *Client) post(ctx context.Context, target Target, operation Operation, token *Token, authorization string) (response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.URL, bytes.NewReader(Envelope(operation, token)))
	if err != nil {
		return response{}, fmt.Errorf("make request: %w", err)
	}
	request.URL.Host = withZone(request.URL, target.Zone)
	request.Header.Set("Content-Type", operation.contentType())
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return response{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, xmltree.MaxBytes+1))
	if err != nil {
		return response{}, fmt.Errorf("read answer: %w", err)
	}
	if len(body) > xmltree.MaxBytes {
		return response{}, fmt.Errorf("an answer of more than %d bytes", xmltree.MaxBytes)
	}
	return response{
		status: answer.StatusCode, challenges: answer.Header.Values("WWW-Authenticate"),
		path: request.URL.RequestURI(), body: body,
	}, nil
}

// withZone is the host with the interface that a link-local address needs and that no URL of a camera can know.
func withZone(address *url.URL, zone string) string {
	ip, err := netip.ParseAddr(address.Hostname())
	if err != nil || !ip.Is6() || !ip.IsLinkLocalUnicast() || zone == "" {
		return address.Host
	}
	host := ip.WithZone(zone).String()
	if address.Port() == "" {
		return "[" + host + "]"
	}
	return net.JoinHostPort(host, address.Port())
}
