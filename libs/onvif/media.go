package onvif

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

type capabilities struct {
	Media string `xml:"Capabilities>Media>XAddr"`
}

type profiles struct {
	Profiles []Profile `xml:"Profiles"`
}

// Profile is a configuration of a camera's video, for example its main stream or a smaller one.
type Profile struct {
	Token    string `xml:"token,attr"`
	Name     string `xml:"Name"`
	Encoding string `xml:"VideoEncoderConfiguration>Encoding"`         // such as H264 and JPEG
	Width    int    `xml:"VideoEncoderConfiguration>Resolution>Width"` // in pixels; 0: no video
	Height   int    `xml:"VideoEncoderConfiguration>Resolution>Height"`
}

type streamURI struct {
	URI string `xml:"MediaUri>Uri"`
}

// MediaService calls GetCapabilities of the device service and returns the URL of the media
// service.
func (c *Client) MediaService(ctx context.Context, target Target) (string, error) {
	response, err := c.call(ctx, target, GetCapabilities, "<o:Category>Media</o:Category>")
	if err != nil {
		return "", err
	}
	address := strings.TrimSpace(response.Capable.Media)
	if address == "" {
		return "", errors.New("the device has no media service")
	}
	return address, nil
}

// Profiles calls GetProfiles of the media service.
func (c *Client) Profiles(ctx context.Context, target Target) ([]Profile, error) {
	response, err := c.call(ctx, target, GetProfiles, "")
	if err != nil {
		return nil, err
	}
	return response.Profiles.Profiles, nil
}

// StreamURI calls GetStreamUri of the media service and returns the address of the profile's RTSP
// stream.
func (c *Client) StreamURI(ctx context.Context, target Target, profile string) (string, error) {
	const setup = `<o:StreamSetup><t:Stream xmlns:t="%[1]s">RTP-Unicast</t:Stream>` +
		`<t:Transport xmlns:t="%[1]s"><t:Protocol>RTSP</t:Protocol></t:Transport></o:StreamSetup><o:ProfileToken>%[2]s</o:ProfileToken>`
	arguments := fmt.Sprintf(setup, "http://www.onvif.org/ver10/schema", escape(profile))
	response, err := c.call(ctx, target, GetStreamURI, arguments)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(response.Stream.URI), nil
}
