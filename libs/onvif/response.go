package onvif

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNotAuthorized means that the device requires other credentials.
var ErrNotAuthorized = errors.New("not authorized")

type envelope struct {
	XMLName xml.Name `xml:"Envelope"`
	Body    *struct {
		Fault *fault `xml:"Fault"`
		Response
	} `xml:"Body"`
}

// Response is the content of a SOAP body. Only the field of the requested operation is set.
type Response struct {
	DateAndTime *DateAndTime       `xml:"GetSystemDateAndTimeResponse"`
	Interfaces  *NetworkInterfaces `xml:"GetNetworkInterfacesResponse"`
	Information *Information       `xml:"GetDeviceInformationResponse"`
	Capable     *capabilities      `xml:"GetCapabilitiesResponse"`
	Profiles    *profiles          `xml:"GetProfilesResponse"`
	Stream      *streamURI         `xml:"GetStreamUriResponse"`
}

// ParseResponse parses the SOAP envelope with the response to the operation. It returns an error if
// the envelope contains a fault or no such response.
func ParseResponse(operation Operation, document []byte) (Response, error) {
	var e envelope
	if err := Decode(document, &e); err != nil {
		return Response{}, err
	}
	switch {
	case e.Body == nil:
		return Response{}, errors.New("SOAP envelope has no body")
	case e.Body.Fault != nil:
		return Response{}, e.Body.Fault.err()
	case !e.Body.has(operation):
		return Response{}, fmt.Errorf("SOAP body has no %sResponse", operation)
	}
	return e.Body.Response, nil
}

func (r Response) has(operation Operation) bool {
	return operation == GetSystemDateAndTime && r.DateAndTime != nil ||
		operation == GetNetworkInterfaces && r.Interfaces != nil ||
		operation == GetDeviceInformation && r.Information != nil ||
		operation == GetCapabilities && r.Capable != nil ||
		operation == GetProfiles && r.Profiles != nil ||
		operation == GetStreamURI && r.Stream != nil
}

// fault is a fault of SOAP 1.2 or 1.1.
type fault struct {
	Code   faultCode `xml:"Code"`
	Code11 string    `xml:"faultcode"`
	Reason string    `xml:"Reason>Text"`
}

type faultCode struct {
	Value   string     `xml:"Value"`
	Subcode *faultCode `xml:"Subcode"`
}

func (f *fault) err() error {
	codes := []string{f.Code11}
	for code := &f.Code; code != nil; code = code.Subcode {
		codes = append(codes, code.Value)
	}
	for _, code := range codes {
		_, local, _ := strings.Cut(strings.TrimSpace(code), ":")
		if slices.Contains([]string{"NotAuthorized", "FailedAuthentication", "InvalidSecurity"}, local) {
			return ErrNotAuthorized
		}
	}
	return fmt.Errorf("SOAP fault %.100q", strings.TrimSpace(f.Reason))
}

// DateAndTime is a device's clock.
type DateAndTime struct {
	Year   string `xml:"SystemDateAndTime>UTCDateTime>Date>Year"`
	Month  string `xml:"SystemDateAndTime>UTCDateTime>Date>Month"`
	Day    string `xml:"SystemDateAndTime>UTCDateTime>Date>Day"`
	Hour   string `xml:"SystemDateAndTime>UTCDateTime>Time>Hour"`
	Minute string `xml:"SystemDateAndTime>UTCDateTime>Time>Minute"`
	Second string `xml:"SystemDateAndTime>UTCDateTime>Time>Second"`
}

// UTC returns the time. It returns false if the device does not report the time in UTC, which ONVIF
// allows.
func (d *DateAndTime) UTC() (time.Time, bool) {
	var parts [6]int
	for i, text := range []string{d.Year, d.Month, d.Day, d.Hour, d.Minute, d.Second} {
		value, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || value < 0 || value > 9999 {
			return time.Time{}, false
		}
		parts[i] = value
	}
	return time.Date(parts[0], time.Month(parts[1]), parts[2], parts[3], parts[4], parts[5], 0, time.UTC), true
}

// NetworkInterfaces are a device's network interfaces.
type NetworkInterfaces struct {
	MACs []string          `xml:"NetworkInterfaces>Info>HwAddress"`
	IPv4 []ipConfiguration `xml:"NetworkInterfaces>IPv4"`
	IPv6 []ipConfiguration `xml:"NetworkInterfaces>IPv6"`
}

type ipConfiguration struct {
	Enabled string `xml:"Enabled"`
	// Sources are elements such as Manual, LinkLocal and FromDHCP, in the order of the document.
	Sources struct {
		Elements []struct {
			Addresses []string `xml:"Address"`
		} `xml:",any"`
	} `xml:"Config"`
}

func (c ipConfiguration) addresses() []string {
	var addresses []string
	for _, source := range c.Sources.Elements {
		addresses = append(addresses, source.Addresses...)
	}
	return addresses
}

// Addresses are the addresses of a device. An empty field is unknown.
type Addresses struct{ IP, MAC string }

// Addresses returns the first IPv4 address, or the best IPv6 address if there is none, and the
// first MAC address.
func (n *NetworkInterfaces) Addresses() Addresses {
	var ipv4 []string
	for _, configuration := range n.IPv4 {
		ipv4 = append(ipv4, configuration.addresses()...)
	}
	return Addresses{IP: cmp.Or(first(ipv4), n.bestIPv6()), MAC: first(n.MACs)}
}

// first returns the first text that is not empty.
func first(texts []string) string {
	for _, text := range texts {
		if text = strings.TrimSpace(text); text != "" {
			return text
		}
	}
	return ""
}

// bestIPv6 returns the first routable address, otherwise the first link-local address. It skips
// disabled configurations and unusable addresses. ONVIF lists manual addresses before automatic
// ones.
func (n *NetworkInterfaces) bestIPv6() string {
	var linkLocal string
	for _, configuration := range n.IPv6 {
		if slices.Contains([]string{"false", "0"}, strings.TrimSpace(configuration.Enabled)) {
			continue
		}
		for _, address := range configuration.addresses() {
			switch ip := parseIPv6(address); {
			case ip.IsGlobalUnicast():
				return ip.String()
			case ip.IsLinkLocalUnicast() && linkLocal == "":
				linkLocal = ip.String()
			}
		}
	}
	return linkLocal
}

// parseIPv6 parses an address and drops brackets, prefix length and zone. Some cameras append the
// prefix length, and the zone is a name of the camera's interface.
func parseIPv6(text string) netip.Addr {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "/")
	ip, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil || !ip.Is6() || ip.Is4In6() {
		return netip.Addr{}
	}
	return ip.WithZone("")
}

// Information is the identification of a device. An empty field is unknown.
type Information struct {
	Manufacturer    string `xml:"Manufacturer"`
	Model           string `xml:"Model"`
	FirmwareVersion string `xml:"FirmwareVersion"`
	SerialNumber    string `xml:"SerialNumber"`
	HardwareID      string `xml:"HardwareId"`
}

func (i Information) trimmed() Information {
	for _, field := range []*string{&i.Manufacturer, &i.Model, &i.FirmwareVersion, &i.SerialNumber, &i.HardwareID} {
		*field = strings.TrimSpace(*field)
	}
	return i
}
