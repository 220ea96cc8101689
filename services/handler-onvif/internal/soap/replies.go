package soap

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"akri.sh/services/handler-onvif/internal/xmltree"
)

// ErrNotAuthorized says that the device wants other credentials.
var ErrNotAuthorized = errors.New("not authorized")

// reply returns the answer to the operation within an envelope, or the fault that is there instead.
func reply(operation Operation, body []byte) (*xmltree.Node, error) {
	root, err := xmltree.Parse(body)
	if err != nil {
		return nil, err
	}
	content := root.Child("Body")
	if root.Name.Local != "Envelope" || content == nil {
		return nil, errors.New("not a SOAP envelope with a body")
	}
	if fault := content.Child("Fault"); fault != nil {
		return nil, faultError(fault)
	}
	answer := content.Child(operation.Name + "Response")
	if answer == nil {
		return nil, fmt.Errorf("no %sResponse", operation.Name)
	}
	return answer, nil
}

func faultError(fault *xmltree.Node) error {
	for _, code := range append(fault.Find("Value"), fault.Find("faultcode")...) {
		_, local, _ := strings.Cut(code.Text, ":")
		if slices.Contains([]string{"NotAuthorized", "FailedAuthentication", "InvalidSecurity"}, local) {
			return ErrNotAuthorized
		}
	}
	text := fault.TextAt("Reason", "Text")
	return fmt.Errorf("fault %.100q", text)
}

// ParseTime reads the UTC time in the answer to GetSystemDateAndTime; a device need not tell it.
func ParseTime(answer []byte) (time.Time, bool, error) {
	node, err := reply(GetSystemDateAndTime, answer)
	if err != nil {
		return time.Time{}, false, err
	}
	utc := node.Child("SystemDateAndTime", "UTCDateTime")
	var parts [6]int
	for i, path := range [][]string{{"Date", "Year"}, {"Date", "Month"}, {"Date", "Day"}, {"Time", "Hour"}, {"Time", "Minute"}, {"Time", "Second"}} {
		value, err := strconv.Atoi(utc.TextAt(path...))
		if err != nil || value < 0 || value > 9999 {
			return time.Time{}, false, nil
		}
		parts[i] = value
	}
	return time.Date(parts[0], time.Month(parts[1]), parts[2], parts[3], parts[4], parts[5], 0, time.UTC), true, nil
}

// Interfaces is what a device tells of its network: each may be empty.
type Interfaces struct{ IP, MAC string }

// ParseInterfaces reads the answer to GetNetworkInterfaces: the first IPv4 address, or the best IPv6 address when there is none, and
// the first hardware address.
func ParseInterfaces(answer []byte) (Interfaces, error) {
	node, err := reply(GetNetworkInterfaces, answer)
	if err != nil {
		return Interfaces{}, err
	}
	var found Interfaces
	for _, ipv4 := range node.Find("IPv4") {
		for _, address := range ipv4.Child("Config").Find("Address") {
			if found.IP == "" {
				found.IP = address.Text
			}
		}
	}
	if found.IP == "" {
		found.IP = bestIPv6(node)
	}
	for _, info := range node.Find("Info") {
		if found.MAC == "" {
			found.MAC = info.TextAt("HwAddress")
		}
	}
	return found, nil
}

// bestIPv6 is the first address that others can route to, else the first link-local one (tt:IPv6Configuration lists what was set
// by hand before what the network gave). What is switched off or reaches nobody else is no address of the camera.
func bestIPv6(interfaces *xmltree.Node) string {
	var linkLocal string
	for _, ipv6 := range interfaces.Find("IPv6") {
		if slices.Contains([]string{"false", "0"}, ipv6.TextAt("Enabled")) {
			continue
		}
		for _, address := range ipv6.Child("Config").Find("Address") {
			switch ip := parseIPv6(address.Text); {
			case ip.IsGlobalUnicast():
				return ip.String()
			case ip.IsLinkLocalUnicast() && linkLocal == "":
				linkLocal = ip.String()
			}
		}
	}
	return linkLocal
}

// parseIPv6 reads an address with or without brackets, prefix length and zone: the prefix length has an element of its own, but not
// all cameras know, and the camera's name of an interface means nothing to others.
func parseIPv6(text string) netip.Addr {
	text, _, _ = strings.Cut(text, "/")
	ip, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil || !ip.Is6() || ip.Is4In6() {
		return netip.Addr{}
	}
	return ip.WithZone("")
}

// Information is how a device is called.
type Information struct{ Manufacturer, Model, FirmwareVersion, SerialNumber, HardwareID string }

// ParseInformation reads the answer to GetDeviceInformation.
func ParseInformation(answer []byte) (Information, error) {
	node, err := reply(GetDeviceInformation, answer)
	if err != nil {
		return Information{}, err
	}
	return Information{
		Manufacturer: node.TextAt("Manufacturer"), Model: node.TextAt("Model"), FirmwareVersion: node.TextAt("FirmwareVersion"),
		SerialNumber: node.TextAt("SerialNumber"), HardwareID: node.TextAt("HardwareId"),
	}, nil
}
