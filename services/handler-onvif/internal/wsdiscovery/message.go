// Package wsdiscovery writes and reads the messages of WS-Discovery (April 2005), as ONVIF uses it
// (ONVIF Core Specification, section 7).
package wsdiscovery

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"akri.sh/services/handler-onvif/internal/xmltree"
)

// Kind of a message.
type Kind int

// The messages that devices send.
const (
	ProbeMatches Kind = iota + 1
	Hello
	Bye
)

// Message is what one datagram says.
type Message struct {
	Kind      Kind
	Endpoints []Endpoint
}

// Endpoint is a device as it describes itself.
type Endpoint struct {
	// UUID identifies the device: its endpoint address without "urn:" and "uuid:", in lower case.
	UUID   string
	Scopes []string
	// Addresses of its device service, http or https.
	Addresses []string
	// Foreign: it names types, and none of them is one of ONVIF.
	Foreign bool
}

// Limits of one message; what is beyond them is left out.
const (
	maxEndpoints = 64
	maxAddresses = 8
	maxAddress   = 512
	maxUUID      = 256
	// maxScopes is in bytes, for all scopes of an endpoint; perScope is what each takes besides its text.
	maxScopes = 8 << 10
	perScope  = 32
)

// ErrIgnored says that a datagram is WS-Discovery, but nothing that a device says: another client's probe, for example.
var ErrIgnored = errors.New("not a message of a device")

// Parse reads a datagram. Endpoints without an identity are left out.
func Parse(datagram []byte) (Message, error) {
	root, err := xmltree.Parse(datagram)
	if err != nil {
		return Message{}, err
	}
	body := root.Child("Body")
	if root.Name.Local != "Envelope" || body == nil {
		return Message{}, errors.New("not a SOAP envelope with a body")
	}
	if matches := body.Child("ProbeMatches"); matches != nil {
		return Message{Kind: ProbeMatches, Endpoints: endpoints(matches.Find("ProbeMatch"))}, nil
	}
	if hello := body.Child("Hello"); hello != nil {
		return Message{Kind: Hello, Endpoints: endpoints([]*xmltree.Node{hello})}, nil
	}
	if bye := body.Child("Bye"); bye != nil {
		return Message{Kind: Bye, Endpoints: endpoints([]*xmltree.Node{bye})}, nil
	}
	return Message{}, ErrIgnored
}

func endpoints(nodes []*xmltree.Node) []Endpoint {
	var found []Endpoint
	for _, node := range nodes[:min(len(nodes), maxEndpoints)] {
		uuid := uuidOf(node.TextAt("EndpointReference", "Address"))
		if uuid == "" || len(uuid) > maxUUID || strings.ContainsFunc(uuid, unprintable) {
			continue
		}
		found = append(found, Endpoint{
			UUID:      strings.Clone(uuid), // of all that is kept: it must not hold the whole datagram
			Scopes:    scopes(node.TextAt("Scopes")),
			Addresses: addresses(node.TextAt("XAddrs")),
			Foreign:   foreign(node.Child("Types")),
		})
	}
	return found
}

func unprintable(r rune) bool { return r <= ' ' || r == 0x7f }

// uuidOf is Akri's way, which the ids of Instances depend on: "uuid:urn:e" is "urn:e".
func uuidOf(address string) string {
	return strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(address), "urn:"), "uuid:"))
}

func scopes(list string) []string {
	var found []string
	left := maxScopes
	for scope := range strings.FieldsSeq(list) {
		if left -= len(scope) + perScope; left < 0 {
			break
		}
		found = append(found, strings.Clone(scope))
	}
	return found
}

func addresses(list string) []string {
	var found []string
	for address := range strings.FieldsSeq(list) {
		if len(found) < maxAddresses && CheckAddress(address) == nil {
			found = append(found, strings.Clone(address))
		}
	}
	return found
}

// CheckAddress tells why a device service cannot be asked at the address.
func CheckAddress(address string) error {
	parsed, err := url.Parse(address)
	switch {
	case err != nil:
		return fmt.Errorf("parse address: %w", err)
	case len(address) > maxAddress:
		return errors.New("address is too long")
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return fmt.Errorf("address of scheme %q: want http or https", parsed.Scheme)
	case parsed.Hostname() == "" || parsed.User != nil || parsed.Fragment != "":
		return errors.New("address without a host, with a user or with a fragment")
	}
	return nil
}

// foreign tells whether the types exclude a device of ONVIF. A prefix that is not declared, as with Akri's own probes,
// leaves the local name to decide; no types at all leave it to the device service.
func foreign(types *xmltree.Node) bool {
	if types == nil || types.Text == "" {
		return false
	}
	for name := range strings.FieldsSeq(types.Text) {
		prefix, local, found := strings.Cut(name, ":")
		if !found {
			prefix, local = "", name
		}
		namespace := types.Namespace(prefix)
		if strings.HasPrefix(namespace, "http://www.onvif.org/") ||
			namespace == "" && (local == "NetworkVideoTransmitter" || local == "Device") {
			return false
		}
	}
	return true
}
