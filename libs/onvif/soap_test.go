package onvif_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/onvif"
)

func envelope(body string) string {
	return `<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body>` + body + `</s:Body></s:Envelope>`
}

func TestTokenMatchesVectorOfUpstreamAkri(t *testing.T) {
	const created = "2000-01-01T12:34:56:789Z"
	header := onvif.SecurityHeader(onvif.Credentials{Username: "u", Password: "1234567"}, "nonce", created)
	for _, want := range []string{
		"<wsse:Username>u</wsse:Username>", "#PasswordDigest\">AGsoQQ+qNJu6Ha7h/QAPoQvYcV0=</wsse:Password>",
		"#Base64Binary\">bm9uY2U=</wsse:Nonce>", "<wsu:Created>" + created + "</wsu:Created>",
	} {
		require.Contains(t, header, want)
	}
}

func TestRequestEscapesUsername(t *testing.T) {
	request := onvif.Request(onvif.GetNetworkInterfaces, "", &onvif.Credentials{Username: "<a&b>"}, time.Now())
	require.Contains(t, string(request), "<wsse:Username>&lt;a&amp;b&gt;</wsse:Username>")
	require.NotContains(t, string(onvif.Request(onvif.GetNetworkInterfaces, "", nil, time.Now())), "Header")
}

func parse(t *testing.T, operation onvif.Operation, body string) onvif.Response {
	t.Helper()
	response, err := onvif.ParseResponse(operation, []byte(envelope(body)))
	require.NoError(t, err)
	return response
}

func TestParseResponse(t *testing.T) {
	interfaces := parse(t, onvif.GetNetworkInterfaces, `<GetNetworkInterfacesResponse>
		<NetworkInterfaces><Info><Name>lo</Name></Info></NetworkInterfaces>
		<NetworkInterfaces><Info><HwAddress> 00:11 </HwAddress></Info><IPv6><Config><Manual><Address>::1</Address></Manual></Config></IPv6>
		<IPv4><Config><FromDHCP><Address> 10.0.0.7 </Address></FromDHCP></Config></IPv4></NetworkInterfaces></GetNetworkInterfacesResponse>`)
	require.Equal(t, onvif.Addresses{IP: "10.0.0.7", MAC: "00:11"}, interfaces.Interfaces.Addresses())

	clock := parse(t, onvif.GetSystemDateAndTime, `<GetSystemDateAndTimeResponse><SystemDateAndTime><UTCDateTime><Time><Hour> 1 </Hour>
		<Minute>2</Minute><Second>3</Second></Time><Date><Year>2026</Year><Month>5</Month><Day>6</Day></Date></UTCDateTime>
		</SystemDateAndTime></GetSystemDateAndTimeResponse>`)
	utc, ok := clock.DateAndTime.UTC()
	require.True(t, ok)
	require.Equal(t, time.Date(2026, 5, 6, 1, 2, 3, 0, time.UTC), utc)
	_, ok = parse(t, onvif.GetSystemDateAndTime, "<GetSystemDateAndTimeResponse/>").DateAndTime.UTC()
	require.False(t, ok)
}

func TestIPv4IsPreferredToBestIPv6(t *testing.T) {
	const prefix = "<PrefixLength>64</PrefixLength>"
	manual := func(address string) string {
		return "<Manual><Address>" + address + "</Address>" + prefix + "</Manual>"
	}
	linkLocal := func(address string) string {
		return "<LinkLocal><Address>" + address + "</Address>" + prefix + "</LinkLocal>"
	}
	leased := func(address string) string {
		return "<FromDHCP><Address>" + address + "</Address>" + prefix + "</FromDHCP>"
	}
	advertised := func(address string) string {
		return "<FromRA><Address>" + address + "</Address>" + prefix + "</FromRA>"
	}
	ip := func(family, enabled string, addresses ...string) string {
		return "<" + family + "><Enabled>" + enabled + "</Enabled><Config>" + strings.Join(addresses, "") + "</Config></" + family + ">"
	}
	v6 := func(addresses ...string) string {
		return ip("IPv6", "true", append([]string{"<DHCP>Stateful</DHCP>"}, addresses...)...)
	}
	for name, test := range map[string]struct {
		interfaces []string
		want       string
	}{
		"both":                               {interfaces: []string{ip("IPv4", "true", leased("10.0.0.7")) + v6(manual("2001:db8::1"))}, want: "10.0.0.7"},
		"both, on different interfaces":      {interfaces: []string{v6(manual("2001:db8::1")), ip("IPv4", "true", manual("10.0.0.7"))}, want: "10.0.0.7"},
		"IPv4 without an address":            {interfaces: []string{ip("IPv4", "true") + v6(manual("2001:db8::1"))}, want: "2001:db8::1"},
		"manual before automatic":            {interfaces: []string{v6(manual("2001:db8::1"), linkLocal("fe80::1"), leased("2001:db8::2"), advertised("2001:db8::3"))}, want: "2001:db8::1"},
		"leased":                             {interfaces: []string{v6(linkLocal("fe80::1"), leased("2001:db8::2"), advertised("2001:db8::3"))}, want: "2001:db8::2"},
		"advertised":                         {interfaces: []string{v6(linkLocal("fe80::1"), advertised("2001:db8::3"))}, want: "2001:db8::3"},
		"private network":                    {interfaces: []string{v6(linkLocal("fe80::1"), advertised("fd00::3"))}, want: "fd00::3"},
		"link-local only":                    {interfaces: []string{v6(linkLocal("fe80::1"), linkLocal("fe80::2"))}, want: "fe80::1"},
		"manual link-local":                  {interfaces: []string{v6(manual("fe80::1"), advertised("2001:db8::3"))}, want: "2001:db8::3"},
		"link-local on an earlier interface": {interfaces: []string{v6(linkLocal("fe80::1")), v6(advertised("2001:db8::3"))}, want: "2001:db8::3"},
		"prefix length":                      {interfaces: []string{v6(manual("2001:db8::1/64"))}, want: "2001:db8::1"},
		"brackets":                           {interfaces: []string{v6(manual("[2001:db8::1]/64"))}, want: "2001:db8::1"},
		"zone":                               {interfaces: []string{v6(linkLocal("fe80::1%eth0"))}, want: "fe80::1"},
		"long form":                          {interfaces: []string{v6(manual("2001:0DB8:0:0:0:0:0:1"))}, want: "2001:db8::1"},
		"unusable addresses are skipped":     {interfaces: []string{v6(manual("::1"), manual("::"), manual("ff02::1"), manual("x"), manual(""), manual("10.0.0.7"), manual("::ffff:10.0.0.7"), leased("2001:db8::2"))}, want: "2001:db8::2"},
		"disabled":                           {interfaces: []string{ip("IPv6", "false", manual("2001:db8::1")), ip("IPv6", "0", linkLocal("fe80::1"))}},
		"none":                               {interfaces: []string{v6()}},
	} {
		t.Run(name, func(t *testing.T) {
			response := parse(t, onvif.GetNetworkInterfaces, "<GetNetworkInterfacesResponse><NetworkInterfaces>"+
				strings.Join(test.interfaces, "</NetworkInterfaces><NetworkInterfaces>")+"</NetworkInterfaces></GetNetworkInterfacesResponse>")
			require.Equal(t, onvif.Addresses{IP: test.want}, response.Interfaces.Addresses())
		})
	}
}

// disconnected is closed when the client disconnects. A server detects that only after it has read
// the request.
func disconnected(r *http.Request) <-chan struct{} {
	_, _ = io.Copy(io.Discard, r.Body)
	return r.Context().Done()
}

func client(timeout time.Duration, authorities *x509.CertPool) *onvif.Client {
	return onvif.NewClient(onvif.Options{
		Timeout: timeout, Concurrency: 2, Authorities: authorities, Observe: func(onvif.Operation, error) {},
	})
}

func TestHostileServersAreBounded(t *testing.T) {
	for name, service := range map[string]http.HandlerFunc{
		"text":              func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") },
		"large body":        func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", 1<<20)) },
		"redirect":          func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) },
		"HTTP error":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) },
		"body never ends":   func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-disconnected(r) },
		"no response":       func(_ http.ResponseWriter, r *http.Request) { <-disconnected(r) },
		"SOAP fault":        func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, envelope(`<Fault><Code/></Fault>`)) },
		"another operation": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, envelope(`<GetUsersResponse/>`)) },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(service)
			t.Cleanup(server.Close)
			_, err := client(300*time.Millisecond, nil).Addresses(t.Context(), onvif.Target{URL: server.URL})
			require.Error(t, err)
			require.NotErrorIs(t, err, onvif.ErrNotAuthorized)
		})
	}
}

func TestRefusedCredentials(t *testing.T) {
	for name, service := range map[string]http.HandlerFunc{
		"HTTP status":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"SOAP 1.2 fault": badRequest(`<Fault><Code><Value>s:Sender</Value><Subcode><Value> ter:NotAuthorized </Value></Subcode></Code></Fault>`),
		"SOAP 1.1 fault": badRequest(`<Fault><faultcode>wsse:FailedAuthentication</faultcode></Fault>`),
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(service)
			t.Cleanup(server.Close)
			for _, credentials := range []*onvif.Credentials{nil, {Username: "ada"}} {
				_, err := client(time.Minute, nil).Information(t.Context(), onvif.Target{URL: server.URL, Credentials: credentials})
				require.ErrorIs(t, err, onvif.ErrNotAuthorized)
			}
		})
	}
}

func badRequest(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, envelope(body))
	}
}

func TestCertificatesAreVerifiedWithAuthorities(t *testing.T) {
	server := httptest.NewTLSServer(badRequest(""))
	t.Cleanup(server.Close)
	authorities := x509.NewCertPool()
	authorities.AddCert(server.Certificate())
	call := func(authorities *x509.CertPool) error {
		_, err := client(time.Minute, authorities).ClockOffset(t.Context(), onvif.Target{URL: server.URL})
		return err
	}
	require.ErrorContains(t, call(nil), "HTTP status 400")
	require.ErrorContains(t, call(authorities), "HTTP status 400")
	require.ErrorContains(t, call(x509.NewCertPool()), "certificate")
}

func TestQueuedCallsEndWithTheirContext(t *testing.T) {
	received := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(received)
		<-disconnected(r)
	}))
	t.Cleanup(server.Close)
	c := onvif.NewClient(onvif.Options{Timeout: time.Minute, Concurrency: 1, Observe: func(onvif.Operation, error) {}})
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 4)
	for range 4 {
		go func() {
			_, err := c.ClockOffset(ctx, onvif.Target{URL: server.URL})
			results <- err
		}()
	}
	<-received
	cancel()
	for range 4 {
		require.ErrorIs(t, <-results, context.Canceled)
	}
}

func FuzzParseResponse(f *testing.F) {
	for _, seed := range []string{
		`<GetNetworkInterfacesResponse><NetworkInterfaces><IPv4/></NetworkInterfaces></GetNetworkInterfacesResponse>`,
		`<GetSystemDateAndTimeResponse><SystemDateAndTime><UTCDateTime><Date><Year>99999999999</Year></Date></UTCDateTime></SystemDateAndTime></GetSystemDateAndTimeResponse>`,
		`<GetDeviceInformationResponse/>`, `<Fault><Code><Value>:</Value></Code></Fault>`,
	} {
		f.Add([]byte(envelope(seed)))
	}
	f.Fuzz(func(_ *testing.T, body []byte) {
		if response, err := onvif.ParseResponse(onvif.GetSystemDateAndTime, body); err == nil {
			response.DateAndTime.UTC()
		}
		if response, err := onvif.ParseResponse(onvif.GetNetworkInterfaces, body); err == nil {
			response.Interfaces.Addresses()
		}
		for _, operation := range []onvif.Operation{onvif.GetDeviceInformation, onvif.GetCapabilities, onvif.GetProfiles, onvif.GetStreamURI} {
			_, _ = onvif.ParseResponse(operation, body)
		}
	})
}
