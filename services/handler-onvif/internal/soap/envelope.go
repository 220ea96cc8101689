// Package soap calls the ONVIF device service: SOAP 1.2 over http and https, with authentication by
// WS-Security UsernameToken or HTTP digest.
package soap

import (
	"bytes"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // required by WS-Security UsernameToken 1.0
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"strings"
	"time"
)

const deviceService = "http://www.onvif.org/ver10/device/wsdl"

// Operation is an operation of the device service without arguments.
type Operation string

// Operations of the device service.
const (
	GetSystemDateAndTime Operation = "GetSystemDateAndTime"
	GetNetworkInterfaces Operation = "GetNetworkInterfaces"
	GetDeviceInformation Operation = "GetDeviceInformation"
)

// Operations are all supported operations.
var Operations = []Operation{GetSystemDateAndTime, GetNetworkInterfaces, GetDeviceInformation}

func (o Operation) contentType() string {
	return fmt.Sprintf(`application/soap+xml; charset=utf-8; action="%s/%s";`, deviceService, o)
}

// Credentials of one device.
type Credentials struct {
	Username string
	Password string
}

// Token is the UsernameToken of one request.
type Token struct {
	Username string
	Digest   string
	Nonce    string
	Created  string
}

// NewToken returns a token with a random nonce. Devices check the age of a token, so now is the
// time of the device's clock.
func NewToken(credentials Credentials, now time.Time) Token {
	return newToken(credentials, []byte(rand.Text()), now.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// newToken computes Password_Digest = Base64(SHA-1(nonce + created + password)), see WS-Security
// UsernameToken Profile 1.0, section 3.1.
func newToken(credentials Credentials, nonce []byte, created string) Token {
	sum := sha1.Sum([]byte(string(nonce) + created + credentials.Password)) //nolint:gosec // required by the profile
	return Token{
		Username: credentials.Username,
		Digest:   base64.StdEncoding.EncodeToString(sum[:]),
		Nonce:    base64.StdEncoding.EncodeToString(nonce),
		Created:  created,
	}
}

const (
	envelopeStart = `<?xml version="1.0" encoding="UTF-8"?><s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope">`
	security      = `<s:Header><wsse:Security s:mustUnderstand="1"` +
		` xmlns:wsse="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd"` +
		` xmlns:wsu="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd">` +
		`<wsse:UsernameToken><wsse:Username>%s</wsse:Username>` +
		`<wsse:Password Type="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-username-token-profile-1.0#PasswordDigest">%s</wsse:Password>` +
		`<wsse:Nonce EncodingType="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0#Base64Binary">%s</wsse:Nonce>` +
		`<wsu:Created>%s</wsu:Created></wsse:UsernameToken></wsse:Security></s:Header>`
)

// Request returns the envelope of a request. The token may be nil.
func Request(operation Operation, token *Token) []byte {
	var b bytes.Buffer
	b.WriteString(envelopeStart)
	if token != nil {
		fmt.Fprintf(&b, security, escape(token.Username), token.Digest, token.Nonce, token.Created)
	}
	fmt.Fprintf(&b, `<s:Body><tds:%[1]s xmlns:tds="%[2]s"></tds:%[1]s></s:Body></s:Envelope>`, operation, deviceService)
	return b.Bytes()
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder returns no errors
	return b.String()
}
