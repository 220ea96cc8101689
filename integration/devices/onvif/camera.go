// Package onvif simulates hundreds of ONVIF cameras: WS-Discovery over multicast, and the device
// service over HTTP. It also simulates non-conforming and hostile devices.
package onvif

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Auth is the authentication that a camera requires for all operations but GetSystemDateAndTime.
type Auth int

// Kinds of authentication.
const (
	Open Auth = iota
	// WSSecurity is a UsernameToken with a digest and a recent time of the camera's clock.
	WSSecurity
	// HTTPDigest is RFC 7616.
	HTTPDigest
)

// Camera is one simulated camera. It must not be changed while it is plugged into a Fleet.
type Camera struct {
	UUID string
	// Address of its device service, without a zone. Several cameras may share an IP address with
	// different ports.
	Address netip.AddrPort
	// MoreAddresses are also served, and announced after Address.
	MoreAddresses []netip.AddrPort
	// MAC is the hardware address in the response to GetNetworkInterfaces.
	MAC    string
	Scopes []string
	// Types of the device; empty: both of ONVIF.
	Types []string
	// ClockOffset is the camera's time minus the local time.
	ClockOffset time.Duration
	Auth        Auth
	Username    string
	Password    string
	// Stream is the address of its video in the response to GetStreamUri; empty: the camera has no
	// media service.
	Stream string
	// Firmware is the version in the response to GetDeviceInformation.
	Firmware string
}

// Make returns a camera. Its UUID, MAC and scopes depend on the number.
func Make(number int, address netip.AddrPort) *Camera {
	return &Camera{
		UUID:     fmt.Sprintf("3fa1fe68-b915-4053-a3e1-%012x", number),
		Address:  address,
		Firmware: "1.0",
		MAC:      fmt.Sprintf("02:00:00:%02x:%02x:%02x", number>>16&0xff, number>>8&0xff, number&0xff),
		Scopes: []string{
			"onvif://www.onvif.org/type/video_encoder",
			fmt.Sprintf("onvif://www.onvif.org/name/camera-%d", number),
			"onvif://www.onvif.org/hardware/simulated",
		},
	}
}

const (
	transmitter = "NetworkVideoTransmitter"
	device      = "Device"
)

func (c *Camera) types() []string {
	if len(c.Types) == 0 {
		return []string{transmitter, device}
	}
	return c.Types
}

// URL returns the URL of the device service.
func (c *Camera) URL() string { return serviceURL(c.Address) }

func serviceURL(address netip.AddrPort) string {
	return "http://" + strings.TrimSuffix(address.String(), ":80") + "/onvif/device_service"
}

func (c *Camera) addresses() []netip.AddrPort {
	return append([]netip.AddrPort{c.Address}, c.MoreAddresses...)
}

func (c *Camera) urls() string {
	var urls []string
	for _, address := range c.addresses() {
		urls = append(urls, serviceURL(address))
	}
	return strings.Join(urls, " ")
}

const head = `<?xml version="1.0" encoding="UTF-8"?>
<SOAP-ENV:Envelope xmlns:SOAP-ENV="http://www.w3.org/2003/05/soap-envelope"
 xmlns:wsa="http://schemas.xmlsoap.org/ws/2004/08/addressing"
 xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery"
 xmlns:dn="http://www.onvif.org/ver10/network/wsdl"
 xmlns:tds="http://www.onvif.org/ver10/device/wsdl"
 xmlns:tt="http://www.onvif.org/ver10/schema"
 xmlns:ter="http://www.onvif.org/ver10/error">`

// description returns the description of the camera in a ProbeMatch or a Hello.
func (c *Camera) description() string {
	names := make([]string, len(c.types()))
	for i, name := range c.types() {
		names[i] = map[string]string{transmitter: "dn:", device: "tds:"}[name] + name
	}
	return fmt.Sprintf(`<wsa:EndpointReference><wsa:Address>urn:uuid:%s</wsa:Address></wsa:EndpointReference>`+
		`<d:Types>%s</d:Types><d:Scopes>%s</d:Scopes><d:XAddrs>%s</d:XAddrs><d:MetadataVersion>1</d:MetadataVersion>`,
		c.UUID, strings.Join(names, " "), strings.Join(c.Scopes, " "), c.urls())
}

func discoveryMessage(action, relatesTo, body string, sequence uint64) []byte {
	if relatesTo != "" {
		relatesTo = "<wsa:RelatesTo>" + relatesTo + "</wsa:RelatesTo>"
	}
	return fmt.Appendf(nil, head+`<SOAP-ENV:Header><wsa:MessageID>urn:uuid:00000000-0000-4000-8000-%012x</wsa:MessageID>%s`+
		`<wsa:To>http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous</wsa:To>`+
		`<wsa:Action>http://schemas.xmlsoap.org/ws/2005/04/discovery/%s</wsa:Action>`+
		`<d:AppSequence InstanceId="1" MessageNumber="%d"/></SOAP-ENV:Header><SOAP-ENV:Body>%s</SOAP-ENV:Body></SOAP-ENV:Envelope>`,
		sequence, relatesTo, action, sequence, body)
}

func (c *Camera) now() time.Time { return time.Now().Add(c.ClockOffset).UTC() }

// dateAndTime, networkInterfaces and information return responses of the device service.
func (c *Camera) dateAndTime() string {
	now := c.now()
	return fmt.Sprintf(`<tds:GetSystemDateAndTimeResponse><tds:SystemDateAndTime><tt:DateTimeType>Manual</tt:DateTimeType>`+
		`<tt:DaylightSavings>false</tt:DaylightSavings><tt:TimeZone><tt:TZ>UTC0</tt:TZ></tt:TimeZone>`+
		`<tt:UTCDateTime><tt:Time><tt:Hour>%d</tt:Hour><tt:Minute>%d</tt:Minute><tt:Second>%d</tt:Second></tt:Time>`+
		`<tt:Date><tt:Year>%d</tt:Year><tt:Month>%d</tt:Month><tt:Day>%d</tt:Day></tt:Date></tt:UTCDateTime>`+
		`</tds:SystemDateAndTime></tds:GetSystemDateAndTimeResponse>`,
		now.Hour(), now.Minute(), now.Second(), now.Year(), now.Month(), now.Day())
}

func (c *Camera) networkInterfaces() string {
	v4, v6 := c.configuration(netip.Addr.Is4, 24), c.configuration(netip.Addr.Is6, 64)
	return fmt.Sprintf(`<tds:GetNetworkInterfacesResponse><tds:NetworkInterfaces token="eth0"><tt:Enabled>true</tt:Enabled>`+
		`<tt:Info><tt:Name>eth0</tt:Name><tt:HwAddress>%s</tt:HwAddress><tt:MTU>1500</tt:MTU></tt:Info>`+
		`<tt:IPv4><tt:Enabled>%t</tt:Enabled><tt:Config>%s<tt:DHCP>false</tt:DHCP></tt:Config></tt:IPv4>`+
		`<tt:IPv6><tt:Enabled>%t</tt:Enabled><tt:Config><tt:DHCP>Off</tt:DHCP>%s</tt:Config></tt:IPv6>`+
		`</tds:NetworkInterfaces></tds:GetNetworkInterfacesResponse>`, c.MAC, v4 != "", v4, v6 != "", v6)
}

// capabilities, profiles and streamURI return responses about the media service, which has the
// address of the device service.
func (c *Camera) capabilities() string {
	media := ""
	if c.Stream != "" {
		media = "<tt:Media><tt:XAddr>" + c.URL() + "</tt:XAddr></tt:Media>"
	}
	return fmt.Sprintf(`<tds:GetCapabilitiesResponse><tds:Capabilities><tt:Device><tt:XAddr>%s</tt:XAddr></tt:Device>%s`+
		`</tds:Capabilities></tds:GetCapabilitiesResponse>`, c.URL(), media)
}

func (c *Camera) profiles() string {
	return `<trt:GetProfilesResponse xmlns:trt="http://www.onvif.org/ver10/media/wsdl"><trt:Profiles token="main"><tt:Name>main</tt:Name>` +
		`<tt:VideoEncoderConfiguration token="main"><tt:Encoding>H264</tt:Encoding><tt:Resolution><tt:Width>640</tt:Width><tt:Height>360</tt:Height>` +
		`</tt:Resolution></tt:VideoEncoderConfiguration></trt:Profiles></trt:GetProfilesResponse>`
}

func (c *Camera) streamURI() string {
	return fmt.Sprintf(`<trt:GetStreamUriResponse xmlns:trt="http://www.onvif.org/ver10/media/wsdl"><trt:MediaUri><tt:Uri>%s</tt:Uri>`+
		`</trt:MediaUri></trt:GetStreamUriResponse>`, c.Stream)
}

// configuration returns the camera's addresses of one family, in the order of the schema.
func (c *Camera) configuration(ofFamily func(netip.Addr) bool, prefix int) string {
	var manual, linkLocal strings.Builder
	for _, address := range c.addresses() {
		ip, name, list := address.Addr(), "Manual", &manual
		if !ofFamily(ip) {
			continue
		}
		if ip.IsLinkLocalUnicast() {
			name, list = "LinkLocal", &linkLocal
		}
		fmt.Fprintf(list, `<tt:%[1]s><tt:Address>%[2]s</tt:Address><tt:PrefixLength>%[3]d</tt:PrefixLength></tt:%[1]s>`, name, ip, prefix)
	}
	return manual.String() + linkLocal.String()
}

func (c *Camera) information() string {
	return fmt.Sprintf(`<tds:GetDeviceInformationResponse><tds:Manufacturer>Akri</tds:Manufacturer><tds:Model>Simulated</tds:Model>`+
		`<tds:FirmwareVersion>%s</tds:FirmwareVersion><tds:SerialNumber>%s</tds:SerialNumber><tds:HardwareId>sim</tds:HardwareId>`+
		`</tds:GetDeviceInformationResponse>`, c.Firmware, c.MAC)
}
