package camerabroker_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/auth"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"
	"github.com/stretchr/testify/require"

	camerabroker "akri.sh/deploy/samples/camera-broker"
	"akri.sh/deploy/samples/camera-broker/internal/video"
	"akri.sh/libs/pki"
)

// rtspCamera is a camera with RTSP, whose user is viewer with the password secret.
type rtspCamera struct {
	address  string // host and port
	stream   *gortsplib.ServerStream
	open     bool   // for clients without password
	location string // of the answers to DESCRIBE, which refer to another address with the status
	status   base.StatusCode

	mu             sync.Mutex
	connections    int
	authorizations []string // that it received
}

// startRTSP starts a camera on a host, changed by options.
func startRTSP(t *testing.T, host string, options ...func(*rtspCamera, *gortsplib.Server)) *rtspCamera {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	c := &rtspCamera{address: listener.Addr().String()}
	server := &gortsplib.Server{
		Handler: c, RTSPAddress: c.address, AuthMethods: []auth.VerifyMethod{auth.VerifyMethodDigestMD5},
		Listen: func(string, string) (net.Listener, error) { return listener, nil },
	}
	for _, option := range options {
		option(c, server)
	}
	require.NoError(t, server.Start())
	h264 := &format.H264{PayloadTyp: 96, PacketizationMode: 1, SPS: unhex(t, "6742c00ad9047a1000000300100000030320f1226480"), PPS: unhex(t, "68cb81b2c8")}
	media := &description.Media{Type: description.MediaTypeVideo, Formats: []format.Format{h264}}
	c.stream = &gortsplib.ServerStream{Server: server, Desc: &description.Session{Medias: []*description.Media{media}}}
	require.NoError(t, c.stream.Initialize())
	ctx, stop := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() { c.send(ctx, media, h264) })
	t.Cleanup(func() {
		stop()
		sending.Wait()
		c.stream.Close()
		server.Close()
	})
	return c
}

// send sends key frames.
func (c *rtspCamera) send(ctx context.Context, media *description.Media, h264 *format.H264) {
	encoder, err := h264.CreateEncoder()
	if err != nil {
		panic(err)
	}
	const frameTime = 20 * time.Millisecond
	for at := uint32(0); ; at += uint32(h264.ClockRate()) / 50 {
		packets, err := encoder.Encode([][]byte{{0x65, 0x88, 0x84}})
		if err != nil {
			panic(err)
		}
		for _, packet := range packets {
			packet.Timestamp = at
			_ = c.stream.WritePacketRTP(media, packet) // fails while the camera stops
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(frameTime):
		}
	}
}

func (c *rtspCamera) OnConnOpen(*gortsplib.ServerHandlerOnConnOpenCtx) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connections++
}

func (c *rtspCamera) OnRequest(_ *gortsplib.ServerConn, request *base.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorizations = append(c.authorizations, request.Header["Authorization"]...)
}

func (c *rtspCamera) OnDescribe(ctx *gortsplib.ServerHandlerOnDescribeCtx) (*base.Response, *gortsplib.ServerStream, error) {
	if !c.open && !ctx.Conn.VerifyCredentials(ctx.Request, "viewer", "secret") {
		return &base.Response{StatusCode: base.StatusUnauthorized}, nil, liberrors.ErrServerAuth{}
	}
	if c.location != "" {
		return &base.Response{StatusCode: c.status, Header: base.Header{"Location": {c.location}}}, nil, nil
	}
	return &base.Response{StatusCode: base.StatusOK}, c.stream, nil
}

func (c *rtspCamera) OnSetup(*gortsplib.ServerHandlerOnSetupCtx) (*base.Response, *gortsplib.ServerStream, error) {
	return &base.Response{StatusCode: base.StatusOK}, c.stream, nil
}

func (c *rtspCamera) OnPlay(*gortsplib.ServerHandlerOnPlayCtx) (*base.Response, error) {
	return &base.Response{StatusCode: base.StatusOK}, nil
}

// received returns the number of connections, and the authorizations that the camera received.
func (c *rtspCamera) received() (connections int, authorizations string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connections, strings.Join(c.authorizations, "\n")
}

// withoutPassword makes a camera open for all clients.
func withoutPassword(c *rtspCamera, _ *gortsplib.Server) { c.open = true }

// refersTo makes a camera answer with another address.
func refersTo(status base.StatusCode, location string) func(*rtspCamera, *gortsplib.Server) {
	return func(c *rtspCamera, _ *gortsplib.Server) { c.status, c.location = status, location }
}

// withBasic makes a camera offer only basic authentication.
func withBasic(_ *rtspCamera, server *gortsplib.Server) {
	server.AuthMethods = []auth.VerifyMethod{auth.VerifyMethodBasic}
}

// withTLS makes a camera serve with a certificate.
func withTLS(certificate tls.Certificate) func(*rtspCamera, *gortsplib.Server) {
	return func(_ *rtspCamera, server *gortsplib.Server) {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	}
}

// frameOf returns why the broker has no frame of the camera at an address, or nil.
func frameOf(t *testing.T, address string, environ ...string) error {
	t.Helper()
	settings, err := camerabroker.Read(append(environ, "RTSP_URL="+address, "CAMERA_USERNAME=viewer", "CAMERA_PASSWORD=secret", "ALLOW_PLAIN_TEXT=true"))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	arrived := false
	err = camerabroker.Source(settings).Run(ctx, func(*video.Frame) {
		arrived = true
		cancel()
	})
	if arrived {
		return nil
	}
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
	return err
}

// TestCameraRefersToAnotherHost lets cameras answer with the address of another host, before and
// after they have verified the password. That host is not connected to.
func TestCameraRefersToAnotherHost(t *testing.T) {
	for _, status := range []base.StatusCode{base.StatusMovedPermanently, base.StatusFound, base.StatusSeeOther, base.StatusUseProxy} {
		for _, location := range []string{
			"rtsp://127.0.0.2", "rtsps://127.0.0.2", "rtsp://viewer:secret@127.0.0.2", "rtsp://127.0.0.1@127.0.0.2", "rtsp://localhost", "rtsp://0.0.0.0",
		} {
			t.Run(fmt.Sprint(int(status), " ", location), func(t *testing.T) {
				t.Parallel()
				other := startRTSP(t, "0.0.0.0")
				_, port, err := net.SplitHostPort(other.address)
				require.NoError(t, err)
				host := location[strings.LastIndexAny(location, "/@")+1:] + ":" + port
				refers := refersTo(status, location+":"+port+"/stream")
				for _, c := range []*rtspCamera{startRTSP(t, "127.0.0.1", refers), startRTSP(t, "127.0.0.1", refers, withoutPassword)} {
					require.ErrorContains(t, frameOf(t, "rtsp://"+c.address+"/stream"), "the camera refers to another host, "+host)
				}
				connections, _ := other.received()
				require.Zero(t, connections)
			})
		}
	}
}

// TestCameraRefersToItself lets a camera answer with another port of its host, where it gets the
// password by digest authentication.
func TestCameraRefersToItself(t *testing.T) {
	own := startRTSP(t, "127.0.0.1")
	c := startRTSP(t, "127.0.0.1", refersTo(base.StatusFound, "rtsp://"+own.address+"/stream"))
	require.NoError(t, frameOf(t, "rtsp://"+c.address+"/stream"))
	for _, camera := range []*rtspCamera{c, own} {
		_, authorizations := camera.received()
		require.Contains(t, authorizations, "Digest ")
		require.NotContains(t, authorizations, "Basic ")
	}
}

// TestPasswordNeedsVerifiedTLS checks that the password is sent by basic authentication only to
// cameras whose certificate is verified, whatever address they refer to.
func TestPasswordNeedsVerifiedTLS(t *testing.T) {
	trusted, file := newAuthority(t)
	certificate := certificateOf(t, trusted, "127.0.0.1")
	const refused = "the camera offers only basic authentication"

	plain := startRTSP(t, "127.0.0.1", withBasic)
	require.ErrorContains(t, frameOf(t, "rtsp://"+plain.address+"/stream", "CAMERA_CA_FILE="+file), refused)
	encrypted := startRTSP(t, "127.0.0.1", withBasic, withTLS(certificate))
	require.ErrorContains(t, frameOf(t, "rtsps://"+encrypted.address+"/stream"), refused)
	for _, camera := range []*rtspCamera{plain, encrypted} {
		_, authorizations := camera.received()
		require.Empty(t, authorizations)
	}

	require.NoError(t, frameOf(t, "rtsps://"+encrypted.address+"/stream", "CAMERA_CA_FILE="+file))
	_, authorizations := encrypted.received()
	require.Contains(t, authorizations, "Basic ")

	// The camera refers from an address with TLS to one without.
	refers := startRTSP(t, "127.0.0.1", withoutPassword, withTLS(certificate), refersTo(base.StatusFound, "rtsp://"+plain.address+"/stream"))
	require.ErrorContains(t, frameOf(t, "rtsps://"+refers.address+"/stream", "CAMERA_CA_FILE="+file), "cannot be downgraded from RTSPS to RTSP")
	_, authorizations = plain.received()
	require.Empty(t, authorizations)
}

// TestCameraAuthorities checks which cameras with rtsps CAMERA_CA_FILE admits. A camera that is
// refused receives no password.
func TestCameraAuthorities(t *testing.T) {
	trusted, file := newAuthority(t)
	_, otherFile := newAuthority(t)
	for name, c := range map[string]struct {
		certified string // address in the certificate
		file      string
		err       string
	}{
		"right authority": {certified: "127.0.0.1", file: file},
		"wrong authority": {certified: "127.0.0.1", file: otherFile, err: "x509: certificate signed by unknown authority"},
		"another address": {certified: "127.0.0.2", file: file, err: "x509: certificate is valid for 127.0.0.2, not 127.0.0.1"},
		"not verified":    {certified: "127.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			camera := startRTSP(t, "127.0.0.1", withTLS(certificateOf(t, trusted, c.certified)))
			err := frameOf(t, "rtsps://"+camera.address+"/stream", "CAMERA_CA_FILE="+c.file)
			_, authorizations := camera.received()
			if c.err == "" {
				require.NoError(t, err)
				require.Contains(t, authorizations, "Digest ")
				return
			}
			require.ErrorContains(t, err, "rtsps://"+camera.address+"/stream: the certificate of the camera is not verified by CAMERA_CA_FILE: ")
			require.ErrorContains(t, err, c.err)
			require.Empty(t, authorizations)
		})
	}
}

// newAuthority returns an authority and the file with its certificate.
func newAuthority(t *testing.T) (authority *pki.KeyPair, file string) {
	t.Helper()
	authority, err := pki.NewCA(time.Now(), "cameras", time.Hour)
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, authority.CertificatePEM, 0o600))
	return authority, file
}

// certificateOf returns a certificate for an address.
func certificateOf(t *testing.T, authority *pki.KeyPair, address string) tls.Certificate {
	t.Helper()
	pair, err := pki.Issue(time.Now(), &x509.Certificate{
		Subject: pkix.Name{CommonName: "camera"}, NotAfter: authority.Leaf.NotAfter, IPAddresses: []net.IP{net.ParseIP(address)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, authority)
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(pair.CertificatePEM, pair.KeyPEM)
	require.NoError(t, err)
	return certificate
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	content, err := hex.DecodeString(text)
	require.NoError(t, err)
	return content
}
