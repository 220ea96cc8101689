package onvif

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
	"syscall"
	"time"

	"github.com/icholy/digest"
)

// Client calls device services with a limited number of concurrent requests.
type Client struct {
	http    *http.Client
	timeout time.Duration
	slots   chan struct{}
	observe func(operation Operation, err error)
}

// Options of a Client.
type Options struct {
	Timeout     time.Duration // of one call, including authentication
	Concurrency int           // maximum number of concurrent calls
	// Authorities of the devices' certificates; nil: not verified, because cameras sign their own.
	Authorities *x509.CertPool
	// Control of each connection, see net.Dialer.ControlContext. It can refuse addresses.
	Control func(ctx context.Context, network, address string, conn syscall.RawConn) error
	// Observe is called with the result of each call.
	Observe func(operation Operation, err error)
}

// NewClient returns a Client.
func NewClient(options Options) *Client {
	transport := &http.Transport{
		DialContext: (&net.Dialer{Timeout: options.Timeout, ControlContext: options.Control}).DialContext,
		// Cameras support few connections, and calls are seconds apart.
		DisableKeepAlives:      true,
		DisableCompression:     true, // a compressed response can exceed MaxBytes when decompressed
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

// Target is a device service or a media service.
type Target struct {
	URL         string
	Zone        string        // interface of a link-local address
	ClockOffset time.Duration // the device's time minus the local time
	Credentials *Credentials  // may be nil
}

// ClockOffset calls GetSystemDateAndTime without credentials and returns the device's time minus
// the local time, or 0 if the device does not report its time. The error is ErrNotAuthorized if
// the device requires credentials even for this operation, which violates ONVIF.
func (c *Client) ClockOffset(ctx context.Context, target Target) (time.Duration, error) {
	target.Credentials = nil
	start := time.Now()
	response, err := c.call(ctx, target, GetSystemDateAndTime, "")
	if err != nil {
		return 0, err
	}
	deviceTime, ok := response.DateAndTime.UTC()
	if !ok {
		return 0, nil
	}
	middle := start.Add(time.Since(start) / 2)
	return deviceTime.Sub(middle).Truncate(time.Second), nil // the device reports whole seconds
}

// Addresses calls GetNetworkInterfaces.
func (c *Client) Addresses(ctx context.Context, target Target) (Addresses, error) {
	response, err := c.call(ctx, target, GetNetworkInterfaces, "")
	if err != nil {
		return Addresses{}, err
	}
	return response.Interfaces.Addresses(), nil
}

// Information calls GetDeviceInformation.
func (c *Client) Information(ctx context.Context, target Target) (Information, error) {
	response, err := c.call(ctx, target, GetDeviceInformation, "")
	if err != nil {
		return Information{}, err
	}
	return response.Information.trimmed(), nil
}

func (c *Client) call(ctx context.Context, target Target, operation Operation, arguments string) (response Response, err error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return Response{}, ctx.Err()
	}
	defer func() { <-c.slots }()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	defer func() { c.observe(operation, err) }()
	reply, err := c.authenticate(ctx, target, operation, arguments)
	if err != nil {
		return Response{}, err
	}
	return reply.parse(operation)
}

// authenticate sends the request with WS-Security first, and with HTTP digest if the device replies
// with a challenge. ONVIF allows only one of them in a request.
func (c *Client) authenticate(ctx context.Context, target Target, operation Operation, arguments string) (httpReply, error) {
	request, err := newRequest(ctx, target, operation, arguments, target.Credentials)
	if err != nil {
		return httpReply{}, err
	}
	reply, err := c.send(request)
	if err != nil || reply.status != http.StatusUnauthorized || target.Credentials == nil {
		return reply, err
	}
	if request, err = newRequest(ctx, target, operation, arguments, nil); err != nil {
		return httpReply{}, err
	}
	header, err := authorization(reply.challenges, digest.Options{
		Method: request.Method, URI: request.URL.RequestURI(), GetBody: request.GetBody,
		Username: target.Credentials.Username, Password: target.Credentials.Password,
	})
	if err != nil {
		return httpReply{}, fmt.Errorf("%w: %w", ErrNotAuthorized, err)
	}
	request.Header.Set("Authorization", header)
	return c.send(request)
}

func newRequest(
	ctx context.Context, target Target, operation Operation, arguments string, credentials *Credentials,
) (*http.Request, error) {
	body := bytes.NewReader(Request(operation, arguments, credentials, time.Now().Add(target.ClockOffset)))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.URL, body)
	if err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	request.URL.Host = hostWithZone(request.URL, target.Zone)
	request.Header.Set("Content-Type", operation.contentType())
	return request, nil
}

// hostWithZone returns the host of the URL with the zone that a link-local address needs. A
// camera's URL cannot contain it, because it is the name of a local interface.
func hostWithZone(address *url.URL, zone string) string {
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

type httpReply struct {
	status     int
	challenges []string
	body       []byte
}

func (c *Client) send(request *http.Request) (httpReply, error) {
	response, err := c.http.Do(request)
	if err != nil {
		return httpReply{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxBytes+1))
	if err != nil {
		return httpReply{}, fmt.Errorf("read response: %w", err)
	}
	if len(body) > MaxBytes {
		return httpReply{}, fmt.Errorf("response exceeds %d bytes", MaxBytes)
	}
	return httpReply{
		status: response.StatusCode, challenges: response.Header.Values("WWW-Authenticate"), body: body,
	}, nil
}

// parse prefers a SOAP fault over the HTTP status, because the fault is more specific.
func (r httpReply) parse(operation Operation) (Response, error) {
	if r.status == http.StatusUnauthorized {
		return Response{}, ErrNotAuthorized
	}
	response, err := ParseResponse(operation, r.body)
	if r.status != http.StatusOK && !errors.Is(err, ErrNotAuthorized) {
		return Response{}, fmt.Errorf("HTTP status %d", r.status)
	}
	return response, err
}
