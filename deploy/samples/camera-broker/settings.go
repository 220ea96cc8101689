package camerabroker

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"

	"akri.sh/libs/broker"
)

// Settings of the broker. Those of USB cameras have the names and defaults of upstream Akri's
// udev-video-broker.
type Settings struct {
	// Name of the camera in the page and in the replies of GetFrame: CAMERA_NAME.
	Name string
	// Path of the device node of a USB camera: UDEV_DEVNODE.
	Path string
	// Format is the preferred pixel format, MJPG or YUYV: FORMAT.
	Format string
	// Width and Height in pixels: RESOLUTION_WIDTH, RESOLUTION_HEIGHT.
	Width, Height int
	// FramesPerSecond: FRAMES_PER_SECOND.
	FramesPerSecond int

	// Service is the device service of a camera with ONVIF: ONVIF_DEVICE_SERVICE_URL.
	Service *url.URL
	// Stream is the address of a camera without ONVIF: RTSP_URL.
	Stream *url.URL
	// Profile is the name or the token of a media profile: PROFILE. "" is the first with video.
	Profile string
	// UDP is set to receive video by UDP: RTSP_TRANSPORT=udp.
	UDP bool
	// Credentials of the camera: CAMERA_USERNAME, CAMERA_PASSWORD.
	Credentials *url.Userinfo
	// AuthoritiesFile has the certificates that camera's certificates are verified with:
	// CAMERA_CA_FILE.
	AuthoritiesFile string

	Server broker.Server
	// Address and MetricsAddress are listened on: ADDRESS, METRICS_ADDRESS.
	Address, MetricsAddress string
}

// properties are the settings that a device, or brokerProperties of its Configuration, may have.
var properties = []string{
	"UDEV_DEVNODE", "ONVIF_DEVICE_SERVICE_URL", "ONVIF_DEVICE_UUID", "RTSP_URL", "PROFILE",
	"FORMAT", "RESOLUTION_WIDTH", "RESOLUTION_HEIGHT", "FRAMES_PER_SECOND", "CAMERA_NAME",
}

// Read returns the settings in the environment, such as os.Environ(). It reports all errors at
// once.
func Read(environ []string) (Settings, error) {
	getenv := broker.Getenv(environ, properties...)
	var errs []error
	number := func(name string, standard int) int {
		text := getenv(name)
		if text == "" {
			return standard
		}
		value, err := strconv.ParseUint(text, 10, 16)
		if err != nil || value == 0 {
			errs = append(errs, fmt.Errorf("%s=%q: must be a number from 1 to 65535", name, text))
		}
		return int(value)
	}
	address := func(name string, schemes ...string) *url.URL {
		text := getenv(name)
		if text == "" {
			return nil
		}
		parsed, err := parseAddress(text, schemes...)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		return parsed
	}
	s := Settings{
		Path: getenv("UDEV_DEVNODE"), Format: getenv("FORMAT"),
		Width: number("RESOLUTION_WIDTH", 640), Height: number("RESOLUTION_HEIGHT", 480),
		FramesPerSecond: number("FRAMES_PER_SECOND", 10),
		Service:         address("ONVIF_DEVICE_SERVICE_URL", "http", "https"), Stream: address("RTSP_URL", "rtsp", "rtsps"),
		Profile: getenv("PROFILE"), AuthoritiesFile: getenv("CAMERA_CA_FILE"),
		Address: cmp.Or(getenv("ADDRESS"), ":8083"), MetricsAddress: cmp.Or(getenv("METRICS_ADDRESS"), ":8080"),
	}
	s.Name = cmp.Or(getenv("CAMERA_NAME"), getenv("ONVIF_DEVICE_UUID"), s.Path, host(s.Stream), host(s.Service))

	if s.Path == "" && s.Service == nil && s.Stream == nil && len(errs) == 0 {
		errs = append(errs, errors.New("none of UDEV_DEVNODE, ONVIF_DEVICE_SERVICE_URL and RTSP_URL is set: "+
			"the Pod must request a device of the handler udev or onvif, or name a stream"))
	}
	switch s.Format {
	case "":
		s.Format = "MJPG"
	case "MJPG", "YUYV":
	default:
		errs = append(errs, fmt.Errorf("FORMAT=%q: must be MJPG or YUYV", s.Format))
	}
	switch transport := getenv("RTSP_TRANSPORT"); transport {
	case "", "tcp":
	case "udp":
		s.UDP = true
	default:
		errs = append(errs, fmt.Errorf("RTSP_TRANSPORT=%q: must be tcp or udp", transport))
	}
	switch username, password := getenv("CAMERA_USERNAME"), getenv("CAMERA_PASSWORD"); {
	case username != "":
		s.Credentials = url.UserPassword(username, password)
	case password != "":
		errs = append(errs, errors.New("CAMERA_PASSWORD is set, so CAMERA_USERNAME must be set"))
	}
	if s.AuthoritiesFile != "" {
		if _, err := os.Stat(s.AuthoritiesFile); err != nil {
			errs = append(errs, fmt.Errorf("CAMERA_CA_FILE: %w", err))
		}
	}
	server, err := broker.ReadServer(getenv)
	s.Server = server
	return s, errors.Join(append(errs, err)...)
}

// parseAddress does not repeat the address in its errors, because it can have a password.
func parseAddress(text string, schemes ...string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("is not an address")
	case parsed.User != nil:
		return nil, errors.New("must have no user name and password: set CAMERA_USERNAME and CAMERA_PASSWORD from a Secret")
	case parsed.Hostname() == "":
		return nil, fmt.Errorf("must have a host, such as %s://192.0.2.1/path", schemes[0])
	case !slices.Contains(schemes, parsed.Scheme):
		return nil, fmt.Errorf("must begin with %s://, not %s://", schemes[0], parsed.Scheme)
	}
	return parsed, nil
}

func host(address *url.URL) string {
	if address == nil {
		return ""
	}
	return address.Hostname()
}
