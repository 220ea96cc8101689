package wsdiscovery_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/services/handler-onvif/internal/wsdiscovery"
	"akri.sh/services/handler-onvif/internal/xmltree"
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

func TestMessagesOfDevices(t *testing.T) {
	scopes := []string{"onvif://a", "onvif://b"}
	url := []string{"http://10.0.0.1/onvif/device_service"}
	one := func(uuid string, foreign bool) []wsdiscovery.Endpoint {
		return []wsdiscovery.Endpoint{{UUID: uuid, Scopes: scopes, Addresses: url, Foreign: foreign}}
	}
	for name, test := range map[string]struct {
		datagram string
		kind     wsdiscovery.Kind
		want     []wsdiscovery.Endpoint
	}{
		"a match":                        {matches(endpoint("urn:uuid:AB-1", "n:NetworkVideoTransmitter", url[0])), wsdiscovery.ProbeMatches, one("ab-1", false)},
		"uuid before urn":                {matches(endpoint("uuid:urn:e", "", url[0])), wsdiscovery.ProbeMatches, one("urn:e", false)},
		"another name space of URNs":     {matches(endpoint("urn:x:uuid:F", "", url[0])), wsdiscovery.ProbeMatches, one("x:uuid:f", false)},
		"an undeclared prefix":           {matches(endpoint("urn:uuid:a", "dn:NetworkVideoTransmitter", url[0])), wsdiscovery.ProbeMatches, one("a", false)},
		"one type of several":            {matches(endpoint("urn:uuid:a", "p:Device n:NetworkVideoTransmitter", url[0])), wsdiscovery.ProbeMatches, one("a", false)},
		"a device of no camera":          {matches(endpoint("urn:uuid:a", "p:Device", url[0])), wsdiscovery.ProbeMatches, one("a", true)},
		"other schemes left out":         {matches(endpoint("urn:uuid:a", "", "ftp://x/ http://u:p@h/ http:/// file:///etc "+url[0])), wsdiscovery.ProbeMatches, one("a", false)},
		"several matches, one is broken": {matches("", endpoint("", "", url[0]), endpoint("urn:uuid:a", "", url[0])), wsdiscovery.ProbeMatches, one("a", false)},
		"no matches":                     {envelope("<d:ProbeMatches/>"), wsdiscovery.ProbeMatches, nil},
		"hello":                          {envelope("<d:Hello>" + endpoint("urn:uuid:a", "", url[0]) + "</d:Hello>"), wsdiscovery.Hello, one("a", false)},
		"bye": {envelope("<d:Bye><a:EndpointReference><a:Address>urn:uuid:a</a:Address></a:EndpointReference></d:Bye>"), wsdiscovery.Bye,
			[]wsdiscovery.Endpoint{{UUID: "a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := wsdiscovery.Parse([]byte(test.datagram))
			require.NoError(t, err)
			require.Equal(t, test.kind, got.Kind)
			require.Equal(t, len(test.want), len(got.Endpoints))
			for i, want := range test.want {
				require.Equal(t, want.UUID, got.Endpoints[i].UUID)
				require.ElementsMatch(t, want.Scopes, got.Endpoints[i].Scopes)
				require.Equal(t, want.Addresses, got.Endpoints[i].Addresses)
				require.Equal(t, want.Foreign, got.Endpoints[i].Foreign)
			}
		})
	}
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	for name, datagram := range map[string]string{
		"nothing": "", "text": "hello", "cut off": start, "two roots": "<a/><b/>", "not SOAP": "<a/>",
		"a document type": `<!DOCTYPE x [<!ENTITY a "b">]>` + envelope("<d:ProbeMatches/>"),
		"an entity":       envelope("<d:Hello>&a;</d:Hello>"),
		"too deep":        strings.Repeat("<a>", 100), "too many": "<a>" + strings.Repeat("<b/>", 20_000) + "</a>",
		"too long": strings.Repeat(" ", xmltree.MaxBytes+1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wsdiscovery.Parse([]byte(datagram))
			require.Error(t, err)
			require.NotErrorIs(t, err, wsdiscovery.ErrIgnored)
		})
	}
	_, err := wsdiscovery.Parse(wsdiscovery.Probe(wsdiscovery.Device, wsdiscovery.NewID()))
	require.ErrorIs(t, err, wsdiscovery.ErrIgnored)
}

func TestProbeDeclaresThePrefixOfItsType(t *testing.T) {
	for kind, namespace := range map[wsdiscovery.Type]string{
		wsdiscovery.Transmitter: "http://www.onvif.org/ver10/network/wsdl", wsdiscovery.Device: "http://www.onvif.org/ver10/device/wsdl",
	} {
		root, err := xmltree.Parse(wsdiscovery.Probe(kind, "1"))
		require.NoError(t, err)
		types := root.Child("Body", "Probe", "Types")
		prefix, _, _ := strings.Cut(types.Text, ":")
		require.Equal(t, namespace, types.Namespace(prefix))
		require.Equal(t, "urn:uuid:1", root.TextAt("Header", "MessageID"))
	}
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, wsdiscovery.NewID())
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

func TestAnEndpointKeepsLittleOfItsDatagram(t *testing.T) {
	datagram := `<Envelope><Body><Hello><EndpointReference><Address>urn:uuid:a</Address></EndpointReference>` +
		`<Scopes>` + strings.Repeat("a ", 30_000) + `</Scopes><XAddrs>http://10.0.0.1/ http://10.0.0.2/` + strings.Repeat("x", 600) + `</XAddrs></Hello></Body></Envelope>`
	message, err := wsdiscovery.Parse([]byte(datagram))
	require.NoError(t, err)
	require.Len(t, message.Endpoints, 1)
	require.Len(t, message.Endpoints[0].Scopes, 8<<10/33)
	require.Equal(t, []string{"http://10.0.0.1/"}, message.Endpoints[0].Addresses)
}
