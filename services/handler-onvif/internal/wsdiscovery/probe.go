package wsdiscovery

import (
	"fmt"
	"net/netip"

	"github.com/google/uuid"
)

// Groups are the multicast groups of WS-Discovery.
var Groups = []netip.AddrPort{
	netip.MustParseAddrPort("239.255.255.250:3702"), netip.MustParseAddrPort("[ff02::c]:3702"),
}

// Type is a device type.
type Type string

// An ONVIF device has one of these types or both. NetworkVideoTransmitter is the older one, Device
// came with ONVIF 2.
const (
	NetworkVideoTransmitter Type = "dn:NetworkVideoTransmitter"
	Device                  Type = "tds:Device"
)

// Types are the types to probe for. Each needs its own probe, because a device answers only if it
// has all types of a probe.
var Types = []Type{NetworkVideoTransmitter, Device}

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

// Probe returns a probe for devices of the type. Each probe has its own message id, because devices
// ignore a probe with an id that they have answered.
func Probe(deviceType Type) []byte {
	return fmt.Appendf(nil, probe, uuid.NewString(), deviceType)
}
