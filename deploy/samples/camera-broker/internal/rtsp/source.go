// Package rtsp reads the video of cameras with RTSP.
package rtsp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"

	"akri.sh/deploy/samples/camera-broker/internal/video"
)

// Options of a Source.
type Options struct {
	// Resolve returns the address of the stream, without credentials.
	Resolve func(ctx context.Context) (*url.URL, error)
	// Credentials of the camera, or nil. They are sent to the host of the address only, by digest
	// authentication, and by basic authentication only to a verified host.
	Credentials *url.Userinfo
	// UDP is set to receive the video by UDP instead of the connection of RTSP.
	UDP bool
	// TLS is used for addresses with rtsps.
	TLS *tls.Config
	Log *slog.Logger
}

// Source is a camera.
type Source struct {
	options Options
}

// New returns a Source.
func New(options Options) *Source { return &Source{options} }

// Run is that of video.Source.
func (s *Source) Run(ctx context.Context, emit func(*video.Frame)) error {
	address, err := s.options.Resolve(ctx)
	if err != nil {
		return err
	}
	stream, err := base.ParseURL(address.String())
	if err != nil {
		return fmt.Errorf("address of the stream %q: %w", address.Redacted(), err)
	}
	client := s.client(stream)
	if err := client.Start(); err != nil {
		return fmt.Errorf("connect to %s: %w", stream.Host, err)
	}
	// Close ends a call that waits for the camera.
	stop := context.AfterFunc(ctx, client.Close)
	defer func() {
		if stop() {
			client.Close()
		}
	}()
	if err := s.play(client, stream, emit); err != nil {
		return fmt.Errorf("%s: %w", address.Redacted(), err)
	}
	return client.Wait()
}

func (s *Source) client(stream *base.URL) *gortsplib.Client {
	protocol := gortsplib.ProtocolTCP
	if s.options.UDP {
		protocol = gortsplib.ProtocolUDP
	}
	stream.User = s.options.Credentials
	secure := s.options.TLS.Clone()
	secure.ServerName = stream.Hostname()
	verified := stream.Scheme == "rtsps" && !s.options.TLS.InsecureSkipVerify

	return &gortsplib.Client{
		Scheme: stream.Scheme, Host: stream.Host, Protocol: &protocol, TLSConfig: secure,
		UserAgent: "akri-camera-broker",
		DialContext: func(ctx context.Context, network, target string) (net.Conn, error) {
			if !sameHost(target, stream.Hostname()) {
				return nil, fmt.Errorf("the camera refers to another host, %s", target)
			}
			return (&net.Dialer{}).DialContext(ctx, network, target)
		},
		OnResponse: func(response *base.Response) {
			if !verified {
				withoutBasic(response)
			}
		},
		OnPacketsLost: func(lost uint64) { s.options.Log.Warn("packets were lost", "packets", lost) },
		OnDecodeError: func(err error) { s.options.Log.Warn("a packet cannot be decoded", "error", err) },
	}
}

func sameHost(target, host string) bool {
	got, _, err := net.SplitHostPort(target)
	return err == nil && strings.EqualFold(got, host)
}

// withoutBasic removes challenges of basic authentication, which sends the password.
func withoutBasic(response *base.Response) {
	var kept base.HeaderValue
	for _, challenge := range response.Header["WWW-Authenticate"] {
		if scheme, _, _ := strings.Cut(strings.TrimSpace(challenge), " "); !strings.EqualFold(scheme, "Basic") {
			kept = append(kept, challenge)
		}
	}
	if response.StatusCode == base.StatusUnauthorized {
		response.Header["WWW-Authenticate"] = kept
	}
}

func (s *Source) play(client *gortsplib.Client, stream *base.URL, emit func(*video.Frame)) error {
	session, response, err := client.Describe(stream)
	switch {
	case response != nil && response.StatusCode == base.StatusUnauthorized && s.options.Credentials == nil:
		return errors.New("the camera requires a user name and a password: set CAMERA_USERNAME and CAMERA_PASSWORD")
	case response != nil && response.StatusCode == base.StatusUnauthorized:
		return errors.New("the camera refuses the user name and the password in CAMERA_USERNAME and CAMERA_PASSWORD")
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return fmt.Errorf("the certificate of the camera is not verified by CAMERA_CA_FILE: %w", err)
	case err != nil && strings.Contains(err.Error(), "no authentication methods available"):
		return errors.New("the camera offers only basic authentication, which sends the password in plain text: use digest authentication, or rtsps and CAMERA_CA_FILE")
	case err != nil:
		return fmt.Errorf("describe: %w", err)
	}
	track, err := find(session, emit)
	if err != nil {
		return err
	}
	if _, err := client.Setup(session.BaseURL, track.media, 0, 0); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	client.OnPacketRTP(track.media, track.format, track.receive(client, s.options.Log))
	if _, err := client.Play(nil); err != nil {
		return fmt.Errorf("play: %w", err)
	}
	s.options.Log.Info("receiving video", "codec", string(track.codec))
	return nil
}

// find returns the first video whose codec is supported.
func find(session *description.Session, emit func(*video.Frame)) (*track, error) {
	var others []string
	for _, media := range session.Medias {
		if media.Type != description.MediaTypeVideo {
			continue
		}
		for _, format := range media.Formats {
			found, err := newTrack(media, format, emit)
			if found != nil || err != nil {
				return found, err
			}
			others = append(others, format.Codec())
		}
	}
	if len(others) == 0 {
		return nil, errors.New("the stream has no video")
	}
	return nil, fmt.Errorf("the stream has video in %s: set the camera or PROFILE to H.264, H.265 or JPEG", strings.Join(others, ", "))
}

// ticks converts a time of RTP.
func ticks(count int64, rate int) time.Duration {
	seconds, rest := count/int64(rate), count%int64(rate)
	return time.Duration(seconds)*time.Second + time.Duration(rest)*time.Second/time.Duration(rate)
}
