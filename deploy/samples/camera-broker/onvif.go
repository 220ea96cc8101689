package camerabroker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"akri.sh/libs/onvif"
)

const callTimeout = 10 * time.Second

// locator finds the address of a stream of a camera with ONVIF.
type locator struct {
	client  *onvif.Client
	service *url.URL
	profile string
	user    *url.Userinfo
	log     *slog.Logger
}

func newLocator(settings Settings, authorities *x509.CertPool, log *slog.Logger) *locator {
	return &locator{
		client: onvif.NewClient(onvif.Options{
			Timeout: callTimeout, Concurrency: 1, Authorities: authorities, Observe: func(onvif.Operation, error) {},
		}),
		service: settings.Service, profile: settings.Profile, user: settings.Credentials, log: log,
	}
}

// resolve asks the camera. The addresses in its answers lead to the camera itself: behind a network
// address translation, cameras name others, and only the camera may get its password.
func (l *locator) resolve(ctx context.Context) (*url.URL, error) {
	device := onvif.Target{URL: l.service.String()}
	offset, err := l.client.ClockOffset(ctx, device)
	if err != nil && !errors.Is(err, onvif.ErrNotAuthorized) {
		return nil, fmt.Errorf("%s: the camera's time: %w", device.URL, err)
	}
	device.ClockOffset = offset
	if l.user != nil {
		password, _ := l.user.Password()
		device.Credentials = &onvif.Credentials{Username: l.user.Username(), Password: password}
	}
	address, err := l.client.MediaService(ctx, device)
	if err != nil {
		return nil, l.failed("the address of the media service", err)
	}
	media, err := l.own(address, "http", "https")
	if err != nil {
		return nil, l.failed("the address of the media service", err)
	}

	target := device
	target.URL = media.String()
	profiles, err := l.client.Profiles(ctx, target)
	if err != nil {
		return nil, l.failed("the media profiles", err)
	}
	profile, err := l.choose(profiles)
	if err != nil {
		return nil, err
	}
	stream, err := l.client.StreamURI(ctx, target, profile.Token)
	if err != nil {
		return nil, l.failed("the address of the stream", err)
	}
	resolved, err := l.own(stream, "rtsp", "rtsps")
	if err != nil {
		return nil, l.failed("the address of the stream", err)
	}
	return resolved, nil
}

func (l *locator) failed(what string, err error) error {
	if errors.Is(err, onvif.ErrNotAuthorized) {
		err = errors.New("the camera refuses the user name and the password in CAMERA_USERNAME and CAMERA_PASSWORD")
		if l.user == nil {
			err = errors.New("the camera requires a user name and a password: set CAMERA_USERNAME and CAMERA_PASSWORD")
		}
	}
	return fmt.Errorf("%s: %s: %w", l.service, what, err)
}

// own returns the address with the camera's own host and without credentials.
func (l *locator) own(text string, schemes ...string) (*url.URL, error) {
	address, err := url.Parse(text)
	if err != nil || !slices.Contains(schemes, address.Scheme) {
		return nil, fmt.Errorf("the camera sent an address that does not begin with %s://", schemes[0])
	}
	address.User, address.Fragment = nil, ""
	if l.service.Scheme == "https" && address.Scheme == "http" {
		return nil, errors.New("the camera sent an address without TLS")
	}
	port := address.Port()
	address.Host = l.service.Hostname()
	if strings.Contains(address.Host, ":") {
		address.Host = "[" + address.Host + "]"
	}
	if port != "" {
		address.Host = net.JoinHostPort(l.service.Hostname(), port)
	}
	return address, nil
}

func (l *locator) choose(profiles []onvif.Profile) (onvif.Profile, error) {
	var names []string
	for _, profile := range profiles {
		if l.profile != "" && (profile.Name == l.profile || profile.Token == l.profile) || l.profile == "" && profile.Width > 0 {
			l.log.Info("using the media profile", "name", profile.Name, "token", profile.Token,
				"encoding", profile.Encoding, "width", profile.Width, "height", profile.Height)
			return profile, nil
		}
		names = append(names, fmt.Sprintf("%q (%s, %d x %d)", profile.Name, profile.Encoding, profile.Width, profile.Height))
	}
	if l.profile == "" {
		return onvif.Profile{}, fmt.Errorf("%s: the camera has no media profile with video", l.service)
	}
	return onvif.Profile{}, fmt.Errorf("%s: PROFILE=%q: the camera has the media profiles %s", l.service, l.profile, strings.Join(names, ", "))
}

// readAuthorities returns nil without a file: cameras sign their own certificates.
func readAuthorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("CAMERA_CA_FILE: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("CAMERA_CA_FILE=%s: has no certificate in PEM", file)
	}
	return pool, nil
}

func streamTLS(authorities *x509.CertPool) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: authorities,
		InsecureSkipVerify: authorities == nil, //nolint:gosec // see readAuthorities
	}
}
