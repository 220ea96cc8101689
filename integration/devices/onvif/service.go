package onvif

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxTokenAge is the maximum difference between the times of a token and of the camera.
const maxTokenAge = 5 * time.Second

// envelope is a request.
type envelope struct {
	Security struct {
		Username string `xml:"Username"`
		Password string `xml:"Password"`
		Nonce    string `xml:"Nonce"`
		Created  string `xml:"Created"`
	} `xml:"Header>Security>UsernameToken"`
	Body struct {
		Content []byte `xml:",innerxml"`
	} `xml:"Body"`
}

var operation = regexp.MustCompile(`^\s*<(?:[\w.-]+:)?(\w+)`)

// service returns the device service.
func (c *Camera) service() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		var request envelope
		if err != nil || xml.Unmarshal(body, &request) != nil {
			http.Error(w, "not SOAP", http.StatusBadRequest)
			return
		}
		name := operation.FindSubmatch(request.Body.Content)
		if name == nil {
			http.Error(w, "no operation", http.StatusBadRequest)
			return
		}
		c.serve(w, r, string(name[1]), request)
	})
}

// preAuth are the operations without authentication (ONVIF Core Specification, access class
// PRE_AUTH).
var preAuth = []string{"GetSystemDateAndTime", "GetServices", "GetCapabilities"}

func (c *Camera) serve(w http.ResponseWriter, r *http.Request, operation string, request envelope) {
	if !slices.Contains(preAuth, operation) && !c.authorized(w, r, request) {
		return
	}
	switch operation {
	case "GetSystemDateAndTime":
		reply(w, http.StatusOK, c.dateAndTime())
	case "GetNetworkInterfaces":
		reply(w, http.StatusOK, c.networkInterfaces())
	case "GetDeviceInformation":
		reply(w, http.StatusOK, c.information())
	case "GetCapabilities":
		reply(w, http.StatusOK, c.capabilities())
	case "GetProfiles":
		reply(w, http.StatusOK, c.profiles())
	case "GetStreamUri":
		reply(w, http.StatusOK, c.streamURI())
	default:
		reply(w, http.StatusInternalServerError, fault("ter:ActionNotSupported", "Optional Action Not Implemented"))
	}
}

func reply(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/soap+xml; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprint(w, head, "<SOAP-ENV:Body>", body, "</SOAP-ENV:Body></SOAP-ENV:Envelope>")
}

func fault(code, reason string) string {
	return fmt.Sprintf(`<SOAP-ENV:Fault><SOAP-ENV:Code><SOAP-ENV:Value>SOAP-ENV:Sender</SOAP-ENV:Value><SOAP-ENV:Subcode><SOAP-ENV:Value>%s</SOAP-ENV:Value>`+
		`</SOAP-ENV:Subcode></SOAP-ENV:Code><SOAP-ENV:Reason><SOAP-ENV:Text xml:lang="en">%s</SOAP-ENV:Text></SOAP-ENV:Reason></SOAP-ENV:Fault>`, code, reason)
}

// authorized replies to the request if it is not authorized.
func (c *Camera) authorized(w http.ResponseWriter, r *http.Request, request envelope) bool {
	switch c.Auth {
	case WSSecurity:
		if !c.isValidToken(request) {
			reply(w, http.StatusBadRequest, fault("ter:NotAuthorized", "Sender not Authorized"))
			return false
		}
	case HTTPDigest:
		if !c.isValidDigest(r) {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Digest realm=%q, qop="auth", nonce="%s", opaque="0a1b"`, realm, c.nonce()))
			w.WriteHeader(http.StatusUnauthorized)
			return false
		}
	}
	return true
}

func (c *Camera) isValidToken(request envelope) bool {
	token := request.Security
	nonce, err := base64.StdEncoding.DecodeString(strings.TrimSpace(token.Nonce))
	created, timeErr := time.Parse(time.RFC3339Nano, token.Created)
	if err != nil || timeErr != nil || len(nonce) == 0 || token.Username != c.Username {
		return false
	}
	if age := c.now().Sub(created); age > maxTokenAge || age < -maxTokenAge {
		return false
	}
	hash := sha1.New()
	for _, part := range [][]byte{nonce, []byte(token.Created), []byte(c.Password)} {
		hash.Write(part)
	}
	return base64.StdEncoding.EncodeToString(hash.Sum(nil)) == strings.TrimSpace(token.Password)
}

const realm = "Simulated camera"

func (c *Camera) nonce() string { return base64.StdEncoding.EncodeToString([]byte(c.UUID)) }

var parameter = regexp.MustCompile(`(\w+)=(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))`)

func (c *Camera) isValidDigest(r *http.Request) bool {
	got := map[string]string{}
	for _, match := range parameter.FindAllStringSubmatch(r.Header.Get("Authorization"), -1) {
		got[match[1]] = strings.ReplaceAll(match[2], `\"`, `"`) + match[3]
	}
	sum := func(text string) string { return fmt.Sprintf("%x", md5.Sum([]byte(text))) }
	want := sum(strings.Join([]string{
		sum(c.Username + ":" + realm + ":" + c.Password), c.nonce(), got["nc"], got["cnonce"], got["qop"],
		sum(r.Method + ":" + r.URL.RequestURI()),
	}, ":"))
	return got["username"] == c.Username && got["realm"] == realm && got["qop"] == "auth" && got["nc"] != "" && got["cnonce"] != "" &&
		got["uri"] == r.URL.RequestURI() && got["opaque"] == "0a1b" && bytes.Equal([]byte(got["response"]), []byte(want))
}
