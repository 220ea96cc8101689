package wsdiscovery_test

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/onvif"
	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

const start = `<e:Envelope xmlns:e="http://www.w3.org/2003/05/soap-envelope" xmlns:a="http://schemas.xmlsoap.org/ws/2004/08/addressing"` +
	` xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery" xmlns:n="http://www.onvif.org/ver10/network/wsdl"` +
	` xmlns:p="http://schemas.xmlsoap.org/ws/2006/02/devprof"><e:Body>`

func envelope(body string) string { return start + body + "</e:Body></e:Envelope>" }

func endpoint(address, types, addresses string) string {
	return "<a:EndpointReference><a:Address>" + address + "</a:Address></a:EndpointReference><d:Types>" + types +
		"</d:Types><d:Scopes> onvif://a\n onvif://b </d:Scopes><d:XAddrs>" + addresses + "</d:XAddrs>"
}

func matches(content ...string) string {
	return envelope("<d:ProbeMatches><d:ProbeMatch>" + strings.Join(content, "</d:ProbeMatch><d:ProbeMatch>") + "</d:ProbeMatch></d:ProbeMatches>")
}

func TestParse(t *testing.T) {
	const url = "http://10.0.0.1/onvif/device_service"
	endpoints := func(uuid string, foreign bool) []wsdiscovery.Endpoint {
		return []wsdiscovery.Endpoint{{
			UUID: uuid, Scopes: []string{"onvif://a", "onvif://b"}, Addresses: []string{url}, Foreign: foreign,
		}}
	}
	for name, test := range map[string]struct {
		datagram string
		kind     wsdiscovery.Kind
		want     []wsdiscovery.Endpoint
	}{
		"match":                       {matches(endpoint("urn:uuid:AB-1", "n:NetworkVideoTransmitter", url)), wsdiscovery.ProbeMatches, endpoints("ab-1", false)},
		"uuid before urn":             {matches(endpoint("uuid:urn:e", "", url)), wsdiscovery.ProbeMatches, endpoints("urn:e", false)},
		"other URN namespace":         {matches(endpoint("urn:x:uuid:F", "", url)), wsdiscovery.ProbeMatches, endpoints("x:uuid:f", false)},
		"undeclared prefix":           {matches(endpoint("urn:uuid:a", "dn:NetworkVideoTransmitter", url)), wsdiscovery.ProbeMatches, endpoints("a", false)},
		"no prefix":                   {matches(endpoint("urn:uuid:a", "Device", url)), wsdiscovery.ProbeMatches, endpoints("a", false)},
		"one of several types":        {matches(endpoint("urn:uuid:a", "p:Device n:NetworkVideoTransmitter", url)), wsdiscovery.ProbeMatches, endpoints("a", false)},
		"foreign device":              {matches(endpoint("urn:uuid:a", "p:Device", url)), wsdiscovery.ProbeMatches, endpoints("a", true)},
		"other schemes are skipped":   {matches(endpoint("urn:uuid:a", "", "ftp://x/ http://u:p@h/ http:/// file:///etc "+url)), wsdiscovery.ProbeMatches, endpoints("a", false)},
		"broken matches are skipped":  {matches("", endpoint("", "", url), endpoint("urn:uuid:a", "", url)), wsdiscovery.ProbeMatches, endpoints("a", false)},
		"no matches":                  {envelope("<d:ProbeMatches/>"), wsdiscovery.ProbeMatches, nil},
		"hello":                       {envelope("<d:Hello>" + endpoint("urn:uuid:a", "", url) + "</d:Hello>"), wsdiscovery.Hello, endpoints("a", false)},
		"prefix redeclared on Types":  {matches(strings.Replace(endpoint("urn:uuid:a", "n:Device", url), "<d:Types>", `<d:Types xmlns:n="u">`, 1)), wsdiscovery.ProbeMatches, endpoints("a", true)},
		"prefix redeclared on Hello":  {envelope(`<d:Hello xmlns:p="http://www.onvif.org/ver10/device/wsdl">` + endpoint("urn:uuid:a", "p:Device", url) + "</d:Hello>"), wsdiscovery.Hello, endpoints("a", false)},
		"prefix of another attribute": {matches(strings.Replace(endpoint("urn:uuid:a", "q:Other", url), "<d:Types>", `<d:Types q="http://www.onvif.org/">`, 1)), wsdiscovery.ProbeMatches, endpoints("a", true)},
		"bye": {
			envelope("<d:Bye><a:EndpointReference><a:Address>urn:uuid:a</a:Address></a:EndpointReference></d:Bye>"), wsdiscovery.Bye,
			[]wsdiscovery.Endpoint{{UUID: "a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			message, err := wsdiscovery.Parse([]byte(test.datagram))
			require.NoError(t, err)
			require.Equal(t, wsdiscovery.Message{Kind: test.kind, Endpoints: test.want}, message)
		})
	}
}

func TestParseRejectsOtherData(t *testing.T) {
	for name, datagram := range map[string]string{
		"empty": "", "text": "hello", "truncated": start, "two roots": "<a/><b/>", "not SOAP": "<a/>", "no body": "<Envelope/>",
		"DTD":      `<!DOCTYPE x [<!ENTITY a "b">]>` + envelope("<d:ProbeMatches/>"),
		"entity":   envelope("<d:Hello>&a;</d:Hello>"),
		"too deep": strings.Repeat("<a>", 100), "too many elements": envelope(strings.Repeat("<b/>", 20_000)),
		"too long": strings.Repeat(" ", onvif.MaxBytes+1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wsdiscovery.Parse([]byte(datagram))
			require.Error(t, err)
			require.NotErrorIs(t, err, wsdiscovery.ErrIgnored)
		})
	}
	_, err := wsdiscovery.Parse(wsdiscovery.Probe(wsdiscovery.Device))
	require.ErrorIs(t, err, wsdiscovery.ErrIgnored)
}

func TestProbeDeclaresThePrefixOfItsType(t *testing.T) {
	for deviceType, namespace := range map[wsdiscovery.Type]string{
		wsdiscovery.NetworkVideoTransmitter: "http://www.onvif.org/ver10/network/wsdl",
		wsdiscovery.Device:                  "http://www.onvif.org/ver10/device/wsdl",
	} {
		var probe struct {
			Attributes []xml.Attr `xml:",any,attr"`
			Types      string     `xml:"Body>Probe>Types"`
			MessageID  string     `xml:"Header>MessageID"`
		}
		require.NoError(t, xml.Unmarshal(wsdiscovery.Probe(deviceType), &probe))
		require.Equal(t, string(deviceType), probe.Types)
		prefix, _, _ := strings.Cut(probe.Types, ":")
		require.Contains(t, probe.Attributes, xml.Attr{Name: xml.Name{Space: "xmlns", Local: prefix}, Value: namespace})
		require.Regexp(t, `^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, probe.MessageID)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(matches(endpoint("urn:uuid:a", "n:NetworkVideoTransmitter", "http://10.0.0.1/"))))
	f.Add([]byte(envelope("<d:Bye/>")))
	f.Add([]byte(`<?xml version="1.0" encoding="iso-8859-1"?>` + envelope("<d:Hello>\xe4</d:Hello>")))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		message, err := wsdiscovery.Parse(datagram)
		if err != nil {
			return
		}
		for _, endpoint := range message.Endpoints {
			require.NotEmpty(t, endpoint.UUID)
			for _, address := range endpoint.Addresses {
				require.NoError(t, wsdiscovery.CheckAddress(address))
			}
		}
	})
}

func TestParseLimitsEndpoints(t *testing.T) {
	datagram := `<Envelope><Body><Hello><EndpointReference><Address>urn:uuid:a</Address></EndpointReference>` +
		`<Scopes>` + strings.Repeat("a ", 30_000) + `</Scopes><XAddrs>http://10.0.0.1/ http://10.0.0.2/` + strings.Repeat("x", 600) +
		`</XAddrs></Hello></Body></Envelope>`
	message, err := wsdiscovery.Parse([]byte(datagram))
	require.NoError(t, err)
	require.Len(t, message.Endpoints, 1)
	require.Len(t, message.Endpoints[0].Scopes, 8<<10/33)
	require.Equal(t, []string{"http://10.0.0.1/"}, message.Endpoints[0].Addresses)
}
