package wsdiscovery

import (
	"crypto/rand"
	"fmt"
	"net/netip"
)

// Port of WS-Discovery.
const Port = 3702

// Groups of WS-Discovery.
var (
	Group4 = netip.MustParseAddr("239.255.255.250")
	Group6 = netip.MustParseAddr("ff02::c")
)

// Type of device to ask for.
type Type string

// A device of ONVIF has one of these types or both: the first is the older, the second came with ONVIF 2.
const (
	Transmitter Type = "dn:NetworkVideoTransmitter"
	Device      Type = "tds:Device"
)

// Types are both: all types of one probe must match, so each type needs a probe of its own.
var Types = []Type{Transmitter, Device}

const probe = `<?xml version="1.0" encoding="UTF-8"?>` +
	`<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"` +
	` xmlns:a="http://schemas.xmlsoap.org/ws/2004/08/addressing"` +
	` xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery"` +
	` xmlns:dn="http://www.onvif.org/ver10/network/wsdl"` +
	` xmlns:tds="http://www.onvif.org/ver10/device/wsdl">` +
	`<s:Header>` +
	`<a:Action s:mustUnderstand="1">http://schemas.xmlsoap.org/ws/2005/04/discovery/Probe</a:Action>` +
	`<a:MessageID>urn:uuid:%s</a:MessageID>` +
	`<a:ReplyTo><a:Address>http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous</a:Address></a:ReplyTo>` +
	`<a:To s:mustUnderstand="1">urn:schemas-xmlsoap-org:ws:2005:04:discovery</a:To>` +
	`</s:Header>` +
	`<s:Body><d:Probe><d:Types>%s</d:Types></d:Probe></s:Body>` +
	`</s:Envelope>`

// Probe asks all devices of the type.
func Probe(kind Type, id string) []byte {
	return fmt.Appendf(nil, probe, id, kind)
}

// NewID returns a random UUID.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
