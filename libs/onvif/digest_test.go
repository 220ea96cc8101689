package onvif_test

import (
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/icholy/digest"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/onvif"
)

func TestDigestMatchesVectorsOfRFCs(t *testing.T) {
	const (
		nonce2617  = "dcd98b7102dd2f0e8b11d0f600bfb0c093"
		opaque2617 = "5ccc069c403ebaf9f0171e9517f40e41"
		realm7616  = `realm="http-auth@example.org", nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"`
		opaque7616 = "FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"
		cnonce7616 = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"
	)
	for name, test := range map[string]struct {
		headers                             []string
		password, cnonce, algorithm, opaque string
		response                            string
	}{
		"RFC 2617, section 3.5": {
			headers:  []string{"Basic realm=x", `Digest realm="testrealm@host.com", qop="auth,auth-int", nonce="` + nonce2617 + `", opaque="` + opaque2617 + `"`},
			password: "Circle Of Life", cnonce: "0a4f113b", opaque: opaque2617, response: "6629fae49393a05397450978507c4ef1",
		},
		"RFC 7616, section 3.9.1, MD5": {
			headers:  []string{`Digest ` + realm7616 + `, qop="auth, auth-int", algorithm=MD5`},
			password: "Circle of Life", cnonce: cnonce7616, opaque: opaque7616, algorithm: "MD5", response: "8ca523f5e9506fed4657c9700eebdbec",
		},
		"RFC 7616, section 3.9.1, the stronger of two": {
			headers:  []string{`Digest ` + realm7616 + `, qop="auth, auth-int", algorithm=SHA-256`, `Digest ` + realm7616 + `, qop="auth, auth-int", algorithm=MD5`},
			password: "Circle of Life", cnonce: cnonce7616, opaque: opaque7616, algorithm: "SHA-256",
			response: "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			header, err := onvif.Authorization(test.headers, digest.Options{
				Method: "GET", URI: "/dir/index.html", Username: "Mufasa", Password: test.password, Cnonce: test.cnonce,
			})
			require.NoError(t, err)
			require.Contains(t, header, `response="`+test.response+`"`)
			require.Contains(t, header, `opaque="`+test.opaque+`"`)
			require.Contains(t, header, `cnonce="`+test.cnonce+`"`)
			require.Contains(t, header, "qop=auth, nc=00000001")
			require.Equal(t, test.algorithm != "", strings.Contains(header, ", algorithm="+test.algorithm+","))
		})
	}
}

func TestNotationsOfChallenges(t *testing.T) {
	options := digest.Options{Method: "POST", URI: "/onvif", Username: "ada", Password: "secret", Cnonce: "c"}
	expected, err := onvif.Authorization([]string{`Digest realm="a \"b\", c=d", nonce="n/+==", algorithm=MD5, qop="auth,auth-int"`}, options)
	require.NoError(t, err)
	for name, header := range map[string]string{
		"names in upper case": `DIGEST REALM="a \"b\", c=d", Nonce="n/+==", ALGORITHM=MD5, qOP="auth,auth-int"`,
		"tabs":                "Digest\trealm=\"a \\\"b\\\", c=d\"\t,\tnonce\t=\t\"n/+==\",\talgorithm=MD5\t,qop=\"auth,auth-int\"\t",
		"empty elements":      `Digest , realm="a \"b\", c=d",, nonce="n/+==", , algorithm=MD5, qop="auth,auth-int", `,
		"without spaces":      `Digest realm="a \"b\", c=d",nonce="n/+==",algorithm=MD5,qop="auth,auth-int",`,
		"other quotes":        `Digest realm="a \"b\", c=d", nonce=n/+== , algorithm="MD5", qop=auth`,
		"second challenge":    `Digest realm="a \"b\", c=d", nonce="n/+==", algorithm=MD5, qop="auth", Basic realm="other"`,
	} {
		t.Run(name, func(t *testing.T) {
			authorization, err := onvif.Authorization([]string{header}, options)
			require.NoError(t, err)
			require.Equal(t, expected, authorization)
		})
	}
}

func TestUnsupportedChallenges(t *testing.T) {
	for _, header := range []string{
		"", "Basic realm=x", "Basic nonce=a", "Digest", "Digest realm=x", `Digest nonce="a`, `Digest nonce=a, qop="other"`, "Digest nonce=a, algorithm=SHA-1", "Digest nonce=a, algorithm=-sess",
	} {
		_, err := onvif.Authorization([]string{header}, digest.Options{})
		require.Error(t, err, header)
	}
}

// The server computes the expected response from the definition in RFC 7616, section 3.4.
func TestServersAcceptDigest(t *testing.T) {
	md5Sum := func(text string) string { return fmt.Sprintf("%x", md5.Sum([]byte(text))) }
	sha256Sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	key := func(sum func(string) string) string { return sum("ada:camera:secret") }
	for name, test := range map[string]struct {
		challenge string
		expected  func(c *digest.Credentials, body string) string
	}{
		"without qop (RFC 2069)": {"", func(_ *digest.Credentials, _ string) string {
			return md5Sum(key(md5Sum) + ":n:" + md5Sum("POST:/onvif"))
		}},
		"empty qop": {`, qop=""`, func(_ *digest.Credentials, _ string) string {
			return md5Sum(key(md5Sum) + ":n:" + md5Sum("POST:/onvif"))
		}},
		"qop of several": {`, qop="auth-int, AUTH"`, func(c *digest.Credentials, _ string) string {
			return md5Sum(key(md5Sum) + ":n:00000001:" + c.Cnonce + ":auth:" + md5Sum("POST:/onvif"))
		}},
		"integrity of the body": {`, qop="auth-int"`, func(c *digest.Credentials, body string) string {
			return md5Sum(key(md5Sum) + ":n:00000001:" + c.Cnonce + ":auth-int:" + md5Sum("POST:/onvif:"+md5Sum(body)))
		}},
		"MD5-sess": {`, algorithm=MD5-sess, qop="auth"`, func(c *digest.Credentials, _ string) string {
			return md5Sum(md5Sum(key(md5Sum)+":n:"+c.Cnonce) + ":n:00000001:" + c.Cnonce + ":auth:" + md5Sum("POST:/onvif"))
		}},
		"MD5-sess without qop": {`, algorithm=MD5-sess`, func(c *digest.Credentials, _ string) string {
			return md5Sum(md5Sum(key(md5Sum)+":n:"+c.Cnonce) + ":n:" + md5Sum("POST:/onvif"))
		}},
		"SHA-256-sess": {`, algorithm=SHA-256-sess, qop="auth"`, func(c *digest.Credentials, _ string) string {
			return sha256Sum(sha256Sum(key(sha256Sum)+":n:"+c.Cnonce) + ":n:00000001:" + c.Cnonce + ":auth:" + sha256Sum("POST:/onvif"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				credentials, err := digest.ParseCredentials(r.Header.Get("Authorization"))
				if err != nil || credentials.Response != test.expected(credentials, string(body)) || strings.Contains(string(body), "Security") {
					w.Header().Set("WWW-Authenticate", `Digest realm="camera", nonce="n"`+test.challenge)
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				fmt.Fprint(w, envelope("<GetDeviceInformationResponse><Model> Peephole </Model></GetDeviceInformationResponse>"))
			}))
			t.Cleanup(server.Close)
			target := onvif.Target{URL: server.URL + "/onvif", Credentials: &onvif.Credentials{Username: "ada", Password: "secret"}}
			information, err := client(time.Minute, nil).Information(t.Context(), target)
			require.NoError(t, err)
			require.Equal(t, onvif.Information{Model: "Peephole"}, information)
			target.Credentials.Password = "wrong"
			_, err = client(time.Minute, nil).Information(t.Context(), target)
			require.ErrorIs(t, err, onvif.ErrNotAuthorized)
		})
	}
}

func FuzzAuthorization(f *testing.F) {
	f.Add(`Digest realm="a\"b", nonce=c, qop="auth"`)
	f.Add(`Digest nonce="`)
	f.Add(`digest ,,=,nonce=\`)
	f.Add("Digest\tNONCE = a , algorithm=md5-sess,")
	f.Fuzz(func(t *testing.T, header string) {
		authorization, err := onvif.Authorization([]string{header}, digest.Options{Username: "a\r\nb", Method: "POST", URI: "/"})
		if err == nil {
			require.False(t, strings.ContainsAny(authorization, "\r\n\x00"), "a header is one line")
		}
	})
}
