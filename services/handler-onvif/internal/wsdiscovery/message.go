// Package wsdiscovery creates and parses messages of WS-Discovery (April 2005) as ONVIF uses them
// (ONVIF Core Specification, section 7).
package wsdiscovery

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"akri.sh/libs/onvif"
)

// Kind is the kind of a message.
type Kind int

// Messages of devices.
const (
	ProbeMatches Kind = iota + 1
	Hello
	Bye
)

// Message is the content of one datagram.
type Message struct {
	Kind      Kind
	Endpoints []Endpoint
}

// Endpoint is a device as described in its messages.
type Endpoint struct {
	// UUID is the endpoint address without "urn:" and "uuid:", in lower case.
	UUID   string
	Scopes []string
	// Addresses of the device service, http or https.
	Addresses []string
	// Foreign means that the endpoint has types, and none of them is a type of ONVIF.
	Foreign bool
}

// Limits of one message. Parse ignores the excess.
const (
	maxEndpoints = 64
	maxAddresses = 8
	maxAddress   = 512
	maxUUID      = 256
	// maxScopes is in bytes, for all scopes of an endpoint. Each scope counts scopeOverhead and its
	// length.
	maxScopes     = 8 << 10
	scopeOverhead = 32
)

// ErrIgnored means that a datagram is a SOAP message, but not of a device. An example is the probe
// of another client.
var ErrIgnored = errors.New("not a message of a device")

// attributes are the attributes of an XML element. They include its namespace declarations.
type attributes []xml.Attr

type envelope struct {
	XMLName    xml.Name   `xml:"Envelope"`
	Attributes attributes `xml:",any,attr"`
	Body       *struct {
		Attributes   attributes `xml:",any,attr"`
		ProbeMatches *struct {
			Attributes attributes    `xml:",any,attr"`
			Matches    []description `xml:"ProbeMatch"`
		} `xml:"ProbeMatches"`
		Hello *description `xml:"Hello"`
		Bye   *description `xml:"Bye"`
	} `xml:"Body"`
}

// description describes an endpoint in a ProbeMatch, Hello or Bye.
type description struct {
	Attributes attributes `xml:",any,attr"`
	Address    string     `xml:"EndpointReference>Address"`
	Types      struct {
		Attributes attributes `xml:",any,attr"`
		Names      string     `xml:",chardata"`
	} `xml:"Types"`
	Scopes string `xml:"Scopes"`
	XAddrs string `xml:"XAddrs"`
}

// Parse parses a datagram. It ignores endpoints without a UUID.
func Parse(datagram []byte) (Message, error) {
	var e envelope
	if err := onvif.Decode(datagram, &e); err != nil {
		return Message{}, err
	}
	if e.Body == nil {
		return Message{}, errors.New("SOAP envelope has no body")
	}
	scope := []attributes{e.Attributes, e.Body.Attributes}
	switch body := e.Body; {
	case body.ProbeMatches != nil:
		scope = append(scope, body.ProbeMatches.Attributes)
		return Message{Kind: ProbeMatches, Endpoints: endpoints(body.ProbeMatches.Matches, scope)}, nil
	case body.Hello != nil:
		return Message{Kind: Hello, Endpoints: endpoints([]description{*body.Hello}, scope)}, nil
	case body.Bye != nil:
		return Message{Kind: Bye, Endpoints: endpoints([]description{*body.Bye}, scope)}, nil
	}
	return Message{}, ErrIgnored
}

// endpoints returns the valid endpoints. Scope are the attributes of the enclosing elements.
// Strings are copied, so that a cached endpoint does not retain the text around them.
func endpoints(descriptions []description, scope []attributes) []Endpoint {
	var valid []Endpoint
	for _, d := range descriptions[:min(len(descriptions), maxEndpoints)] {
		uuid := uuidOf(d.Address)
		if uuid == "" || len(uuid) > maxUUID || strings.ContainsFunc(uuid, unprintable) {
			continue
		}
		valid = append(valid, Endpoint{
			UUID:      strings.Clone(uuid),
			Scopes:    scopes(d.Scopes),
			Addresses: addresses(d.XAddrs),
			Foreign:   isForeign(d.Types.Names, append(scope, d.Attributes, d.Types.Attributes)),
		})
	}
	return valid
}

func unprintable(r rune) bool { return r <= ' ' || r == 0x7f }

// uuidOf returns the same UUID as upstream Akri, because the names of Instances depend on it:
// "uuid:urn:e" is "urn:e".
func uuidOf(address string) string {
	return strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(address), "urn:"), "uuid:"))
}

func scopes(list string) []string {
	var kept []string
	left := maxScopes
	for scope := range strings.FieldsSeq(list) {
		if left -= len(scope) + scopeOverhead; left < 0 {
			break
		}
		kept = append(kept, strings.Clone(scope))
	}
	return kept
}

func addresses(list string) []string {
	var kept []string
	for address := range strings.FieldsSeq(list) {
		if len(kept) < maxAddresses && CheckAddress(address) == nil {
			kept = append(kept, strings.Clone(address))
		}
	}
	return kept
}

// CheckAddress returns an error if the address is not valid for a device service.
func CheckAddress(address string) error {
	parsed, err := url.Parse(address)
	switch {
	case err != nil:
		return fmt.Errorf("parse address: %w", err)
	case len(address) > maxAddress:
		return fmt.Errorf("address has %d bytes, the limit is %d", len(address), maxAddress)
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return fmt.Errorf("scheme %q of address must be http or https", parsed.Scheme)
	case parsed.Hostname() == "" || parsed.User != nil || parsed.Fragment != "":
		return errors.New("address must have a host, and no user or fragment")
	}
	return nil
}

// isForeign reports whether none of the types is a type of ONVIF. Without types, the device
// service decides. Some devices do not declare the prefix of a type, nor do the probes of
// upstream Akri: then the local name decides.
func isForeign(types string, scope []attributes) bool {
	foreign := false
	for name := range strings.FieldsSeq(types) {
		prefix, local, found := strings.Cut(name, ":")
		if !found {
			prefix, local = "", name
		}
		namespace := namespaceOf(prefix, scope)
		if strings.HasPrefix(namespace, "http://www.onvif.org/") ||
			namespace == "" && (local == "NetworkVideoTransmitter" || local == "Device") {
			return false
		}
		foreign = true
	}
	return foreign
}

// namespaceOf returns the namespace of the prefix in the innermost element that declares it.
func namespaceOf(prefix string, scope []attributes) string {
	for _, element := range slices.Backward(scope) {
		for _, attribute := range element {
			if attribute.Name.Space == "xmlns" && attribute.Name.Local == prefix {
				return attribute.Value
			}
		}
	}
	return ""
}
