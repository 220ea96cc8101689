// Package onvif calls the device service and the media service of ONVIF: SOAP 1.2 over http and
// https, with authentication by WS-Security UsernameToken or HTTP digest.
package onvif

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

const (
	deviceService = "http://www.onvif.org/ver10/device/wsdl"
	mediaService  = "http://www.onvif.org/ver10/media/wsdl"
)

// Operation is an operation of the device service or of the media service.
type Operation string

// Operations of the device service.
const (
	GetSystemDateAndTime Operation = "GetSystemDateAndTime"
	GetNetworkInterfaces Operation = "GetNetworkInterfaces"
	GetDeviceInformation Operation = "GetDeviceInformation"
	GetCapabilities      Operation = "GetCapabilities"
)

// Operations of the media service.
const (
	GetProfiles  Operation = "GetProfiles"
	GetStreamURI Operation = "GetStreamUri"
)

// service returns the namespace of the service that has the operation.
func (o Operation) service() string {
	if o == GetProfiles || o == GetStreamURI {
		return mediaService
	}
	return deviceService
}

func (o Operation) contentType() string {
	return fmt.Sprintf(`application/soap+xml; charset=utf-8; action="%s/%s";`, o.service(), o)
}

// Credentials of one device.
type Credentials struct {
	Username string
	Password string
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

// Request returns the envelope of a request. The arguments are XML elements. If there are
// credentials, it has a UsernameToken with a random nonce. Devices check the age of the token, so
// now is the time of the device's clock.
func Request(operation Operation, arguments string, credentials *Credentials, now time.Time) []byte {
	var b bytes.Buffer
	b.WriteString(envelopeStart)
	if credentials != nil {
		b.WriteString(securityHeader(*credentials, rand.Text(), now.UTC().Format("2006-01-02T15:04:05.000Z")))
	}
	fmt.Fprintf(&b, `<s:Body><o:%[1]s xmlns:o="%[2]s">%[3]s</o:%[1]s></s:Body></s:Envelope>`, operation, operation.service(), arguments)
	return b.Bytes()
}

// securityHeader computes Password_Digest = Base64(SHA-1(nonce + created + password)), see
// WS-Security UsernameToken Profile 1.0, section 3.1.
func securityHeader(credentials Credentials, nonce, created string) string {
	digest := sha1.Sum([]byte(nonce + created + credentials.Password)) //nolint:gosec // required by the profile
	return fmt.Sprintf(security, escape(credentials.Username), base64.StdEncoding.EncodeToString(digest[:]),
		base64.StdEncoding.EncodeToString([]byte(nonce)), created)
}

func escape(text string) string {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(text)) // a strings.Builder returns no errors
	return escaped.String()
}
