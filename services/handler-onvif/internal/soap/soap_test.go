package soap_test

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

	"akri.sh/services/handler-onvif/internal/soap"
)

func envelope(body string) string {
	return `<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body>` + body + `</s:Body></s:Envelope>`
}

func TestTokenIsTheOneOfAkrisVector(t *testing.T) {
	token := soap.TokenOf(soap.Credentials{Username: "u", Password: "1234567"}, []byte("nonce"), "2000-01-01T12:34:56:789Z")
	require.Equal(t, soap.Token{Username: "u", Nonce: "bm9uY2U=", Digest: "AGsoQQ+qNJu6Ha7h/QAPoQvYcV0=", Created: "2000-01-01T12:34:56:789Z"}, token)
}

func TestEnvelopeEscapesTheUsername(t *testing.T) {
	token := soap.NewToken(soap.Credentials{Username: "<a&b>"}, time.Now())
	require.Contains(t, string(soap.Envelope(soap.GetNetworkInterfaces, &token)), "<wsse:Username>&lt;a&amp;b&gt;</wsse:Username>")
	require.NotContains(t, string(soap.Envelope(soap.GetNetworkInterfaces, nil)), "Header")
}

func TestAnswers(t *testing.T) {
	found, err := soap.ParseInterfaces([]byte(envelope(`<GetNetworkInterfacesResponse>
		<NetworkInterfaces><Info><Name>lo</Name></Info></NetworkInterfaces>
		<NetworkInterfaces><Info><HwAddress>00:11</HwAddress></Info><IPv6><Config><Address>::1</Address></Config></IPv6>
		<IPv4><Config><FromDHCP><Address>10.0.0.7</Address></FromDHCP></Config></IPv4></NetworkInterfaces></GetNetworkInterfacesResponse>`)))
	require.NoError(t, err)
	require.Equal(t, soap.Interfaces{IP: "10.0.0.7", MAC: "00:11"}, found)

	told, known, err := soap.ParseTime([]byte(envelope(`<GetSystemDateAndTimeResponse><SystemDateAndTime><UTCDateTime><Time><Hour>1</Hour>
		<Minute>2</Minute><Second>3</Second></Time><Date><Year>2026</Year><Month>5</Month><Day>6</Day></Date></UTCDateTime>
		</SystemDateAndTime></GetSystemDateAndTimeResponse>`)))
	require.NoError(t, err)
	require.True(t, known)
	require.Equal(t, time.Date(2026, 5, 6, 1, 2, 3, 0, time.UTC), told)
	_, known, err = soap.ParseTime([]byte(envelope(`<GetSystemDateAndTimeResponse/>`)))
	require.NoError(t, err)
	require.False(t, known)
}

func TestIPAddressIsOfIPv4ElseTheBestOfIPv6(t *testing.T) {
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
		"both":                                 {interfaces: []string{ip("IPv4", "true", leased("10.0.0.7")) + v6(manual("2001:db8::1"))}, want: "10.0.0.7"},
		"both, on different interfaces":        {interfaces: []string{v6(manual("2001:db8::1")), ip("IPv4", "true", manual("10.0.0.7"))}, want: "10.0.0.7"},
		"IPv4 without an address":              {interfaces: []string{ip("IPv4", "true") + v6(manual("2001:db8::1"))}, want: "2001:db8::1"},
		"set by hand before what is given":     {interfaces: []string{v6(manual("2001:db8::1"), linkLocal("fe80::1"), leased("2001:db8::2"), advertised("2001:db8::3"))}, want: "2001:db8::1"},
		"leased":                               {interfaces: []string{v6(linkLocal("fe80::1"), leased("2001:db8::2"), advertised("2001:db8::3"))}, want: "2001:db8::2"},
		"advertised":                           {interfaces: []string{v6(linkLocal("fe80::1"), advertised("2001:db8::3"))}, want: "2001:db8::3"},
		"of a private network":                 {interfaces: []string{v6(linkLocal("fe80::1"), advertised("fd00::3"))}, want: "fd00::3"},
		"only link-local":                      {interfaces: []string{v6(linkLocal("fe80::1"), linkLocal("fe80::2"))}, want: "fe80::1"},
		"link-local, set by hand":              {interfaces: []string{v6(manual("fe80::1"), advertised("2001:db8::3"))}, want: "2001:db8::3"},
		"link-local, on an interface before":   {interfaces: []string{v6(linkLocal("fe80::1")), v6(advertised("2001:db8::3"))}, want: "2001:db8::3"},
		"with a prefix length":                 {interfaces: []string{v6(manual("2001:db8::1/64"))}, want: "2001:db8::1"},
		"with brackets":                        {interfaces: []string{v6(manual("[2001:db8::1]/64"))}, want: "2001:db8::1"},
		"with a zone":                          {interfaces: []string{v6(linkLocal("fe80::1%eth0"))}, want: "fe80::1"},
		"in a long form":                       {interfaces: []string{v6(manual("2001:0DB8:0:0:0:0:0:1"))}, want: "2001:db8::1"},
		"what reaches nobody else is left out": {interfaces: []string{v6(manual("::1"), manual("::"), manual("ff02::1"), manual("x"), manual(""), manual("10.0.0.7"), manual("::ffff:10.0.0.7"), leased("2001:db8::2"))}, want: "2001:db8::2"},
		"switched off":                         {interfaces: []string{ip("IPv6", "false", manual("2001:db8::1")), ip("IPv6", "0", linkLocal("fe80::1"))}},
		"none":                                 {interfaces: []string{v6()}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := soap.ParseInterfaces([]byte(envelope("<GetNetworkInterfacesResponse><NetworkInterfaces>" +
				strings.Join(test.interfaces, "</NetworkInterfaces><NetworkInterfaces>") + "</NetworkInterfaces></GetNetworkInterfacesResponse>")))
			require.NoError(t, err)
			require.Equal(t, soap.Interfaces{IP: test.want}, found)
		})
	}
}

func TestDigestIsTheOneOfTheRFCs(t *testing.T) {
	const (
		nonce2617  = "dcd98b7102dd2f0e8b11d0f600bfb0c093"
		opaque2617 = "5ccc069c403ebaf9f0171e9517f40e41"
		realm7616  = `realm="http-auth@example.org", nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"`
		cnonce7616 = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"
	)
	for name, test := range map[string]struct {
		headers                     []string
		password, cnonce, algorithm string
		response                    string
	}{
		"RFC 2617, 3.5": {
			headers:  []string{"Basic realm=x", `Digest realm="testrealm@host.com", qop="auth,auth-int", nonce="` + nonce2617 + `", opaque="` + opaque2617 + `"`},
			password: "Circle Of Life", cnonce: "0a4f113b", response: "6629fae49393a05397450978507c4ef1",
		},
		"RFC 7616, 3.9.1, MD5": {
			headers:  []string{`Digest ` + realm7616 + `, qop="auth, auth-int", algorithm=MD5`},
			password: "Circle of Life", cnonce: cnonce7616, algorithm: "MD5", response: "8ca523f5e9506fed4657c9700eebdbec",
		},
		"RFC 7616, 3.9.1, the stronger of both": {
			headers:  []string{`Digest ` + realm7616 + `, qop="auth, auth-int", algorithm=SHA-256`, `Digest ` + realm7616 + `, qop="auth, auth-int", algorithm=MD5`},
			password: "Circle of Life", cnonce: cnonce7616, algorithm: "SHA-256",
			response: "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			challenge, err := soap.ParseChallenge(test.headers)
			require.NoError(t, err)
			answer := soap.AnswerWith(challenge, soap.Credentials{Username: "Mufasa", Password: test.password}, "GET", "/dir/index.html", test.cnonce)
			require.Contains(t, answer, `response="`+test.response+`"`)
			require.Contains(t, answer, `opaque="`+challenge.Opaque+`"`)
			require.Contains(t, answer, `cnonce="`+test.cnonce+`", qop=auth, nc=00000001`)
			require.Equal(t, test.algorithm != "", strings.Contains(answer, ", algorithm="+test.algorithm+","))
		})
	}
}

func TestChallengesThatCannotBeMetAreRefused(t *testing.T) {
	for _, header := range []string{"", "Basic realm=x", "Digest realm=x", `Digest nonce=a, qop="auth-int"`, "Digest nonce=a, algorithm=SHA-1"} {
		_, err := soap.ParseChallenge([]string{header})
		require.Error(t, err, header)
	}
}

// gone is closed when the client leaves; a server notices only once it has read the request.
func gone(r *http.Request) <-chan struct{} {
	_, _ = io.Copy(io.Discard, r.Body)
	return r.Context().Done()
}

func client(timeout time.Duration, authorities *x509.CertPool) *soap.Client {
	return soap.NewClient(soap.Options{Timeout: timeout, Concurrency: 2, Authorities: authorities, Observe: func(string, error) {}})
}

func TestHostileServersAreBounded(t *testing.T) {
	for name, service := range map[string]http.HandlerFunc{
		"no XML":       func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") },
		"a huge one":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", 1<<20)) },
		"a redirect":   func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) },
		"an error":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) },
		"no end":       func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-gone(r) },
		"no beginning": func(_ http.ResponseWriter, r *http.Request) { <-gone(r) },
		"a fault":      func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, envelope(`<Fault><Code/></Fault>`)) },
		"another":      func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, envelope(`<GetUsersResponse/>`)) },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(service)
			t.Cleanup(server.Close)
			_, err := client(300*time.Millisecond, nil).Interfaces(t.Context(), soap.Target{URL: server.URL})
			require.Error(t, err)
			require.NotErrorIs(t, err, soap.ErrNotAuthorized)
		})
	}
}

func TestRefusalsAreTold(t *testing.T) {
	for name, service := range map[string]http.HandlerFunc{
		"by status":         func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"by SOAP 1.2 fault": refusal(`<Fault><Code><Value>s:Sender</Value><Subcode><Value>ter:NotAuthorized</Value></Subcode></Code></Fault>`),
		"by SOAP 1.1 fault": refusal(`<Fault><faultcode>wsse:FailedAuthentication</faultcode></Fault>`),
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(service)
			t.Cleanup(server.Close)
			for _, credentials := range []*soap.Credentials{nil, {Username: "ada"}} {
				_, err := client(time.Second, nil).Information(t.Context(), soap.Target{URL: server.URL, Credentials: credentials})
				require.ErrorIs(t, err, soap.ErrNotAuthorized)
			}
		})
	}
}

func refusal(fault string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, envelope(fault))
	}
}

func TestCertificatesAreCheckedWhenAuthoritiesAreGiven(t *testing.T) {
	server := httptest.NewTLSServer(refusal(""))
	t.Cleanup(server.Close)
	good := x509.NewCertPool()
	good.AddCert(server.Certificate())
	ask := func(authorities *x509.CertPool) error {
		_, err := client(time.Second, authorities).Time(t.Context(), soap.Target{URL: server.URL})
		return err
	}
	require.ErrorContains(t, ask(nil), "HTTP status 400")
	require.ErrorContains(t, ask(good), "HTTP status 400")
	require.ErrorContains(t, ask(x509.NewCertPool()), "certificate")
}

func TestQuestionsWaitForTheirTurnAndGiveUpWithTheirContext(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-gone(r) }))
	t.Cleanup(server.Close)
	c := soap.NewClient(soap.Options{Timeout: time.Minute, Concurrency: 1, Observe: func(string, error) {}})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	results := make(chan error, 4)
	for range 4 {
		go func() { _, err := c.Time(ctx, soap.Target{URL: server.URL}); results <- err }()
	}
	for range 4 {
		require.ErrorIs(t, <-results, context.DeadlineExceeded)
	}
}

func FuzzReplies(f *testing.F) {
	for _, seed := range []string{
		`<GetNetworkInterfacesResponse><NetworkInterfaces><IPv4/></NetworkInterfaces></GetNetworkInterfacesResponse>`,
		`<GetSystemDateAndTimeResponse><SystemDateAndTime><UTCDateTime><Date><Year>99999999999</Year></Date></UTCDateTime></SystemDateAndTime></GetSystemDateAndTimeResponse>`,
		`<GetDeviceInformationResponse/>`, `<Fault><Code><Value>:</Value></Code></Fault>`,
	} {
		f.Add([]byte(envelope(seed)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _, _ = soap.ParseTime(body)
		_, _ = soap.ParseInterfaces(body)
		_, _ = soap.ParseInformation(body)
	})
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Digest realm="a\"b", nonce=c, qop="auth"`)
	f.Add(`Digest nonce="`)
	f.Add(`digest ,,=,nonce=\`)
	f.Fuzz(func(t *testing.T, header string) {
		challenge, err := soap.ParseChallenge([]string{header})
		if err == nil {
			answer := challenge.Answer(soap.Credentials{Username: "a\r\nb"}, "POST", "/")
			require.False(t, strings.ContainsAny(answer, "\r\n\x00"), "a header is one line")
		}
	})
}
