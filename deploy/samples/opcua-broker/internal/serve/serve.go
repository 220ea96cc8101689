// Package serve serves HTTP and gRPC of a broker on one port: with TLS and a token, or as plain
// text where a setting allows that.
package serve

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/libs/limits"
	"akri.sh/libs/service"
)

// Settings of a server.
type Settings struct {
	// CertFile and KeyFile are the certificate and its key in PEM: TLS_CERT_FILE, TLS_KEY_FILE.
	// They may change while the server runs.
	CertFile, KeyFile string
	// TokenFile has the token that clients send as `Authorization: Bearer TOKEN`: TOKEN_FILE. It
	// may change while the server runs.
	TokenFile string
	// AllowPlainText allows to serve without TLS or without a token: ALLOW_PLAIN_TEXT.
	AllowPlainText bool
}

// Read returns the settings in the environment. It reports all errors at once, and errors in the
// files.
func Read(getenv func(string) string) (Settings, error) {
	s := Settings{CertFile: getenv("TLS_CERT_FILE"), KeyFile: getenv("TLS_KEY_FILE"), TokenFile: getenv("TOKEN_FILE")}
	var errs []error
	switch text := getenv("ALLOW_PLAIN_TEXT"); text {
	case "true":
		s.AllowPlainText = true
	case "", "false":
	default:
		errs = append(errs, fmt.Errorf("ALLOW_PLAIN_TEXT=%q: must be true or false", text))
	}

	switch {
	case s.CertFile == "" && s.KeyFile == "":
		if !s.AllowPlainText {
			errs = append(errs, errors.New("TLS_CERT_FILE and TLS_KEY_FILE are not set: set them, or ALLOW_PLAIN_TEXT=true"))
		}
	case s.CertFile == "" || s.KeyFile == "":
		errs = append(errs, errors.New("TLS_CERT_FILE and TLS_KEY_FILE: set both"))
	default:
		if _, err := s.certificate(nil); err != nil {
			errs = append(errs, fmt.Errorf("TLS_CERT_FILE and TLS_KEY_FILE: %w", err))
		}
	}
	if s.TokenFile == "" {
		if !s.AllowPlainText {
			errs = append(errs, errors.New("TOKEN_FILE is not set: set it, or ALLOW_PLAIN_TEXT=true"))
		}
	} else if _, err := s.token(); err != nil {
		errs = append(errs, err)
	}
	return s, errors.Join(errs...)
}

func (s Settings) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	certificate, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return nil, err
	}
	return &certificate, nil
}

func (s Settings) token() (string, error) {
	text, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return "", fmt.Errorf("TOKEN_FILE: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("TOKEN_FILE: %s is empty", s.TokenFile)
	}
	return token, nil
}

const (
	headerTimeout = 5 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = time.Minute
	// perSource is the number of connections of a client, or of the clients behind one address.
	perSource   = 64
	maxStreams  = 100
	stopTimeout = time.Second
)

// Server is what a broker serves.
type Server struct {
	Settings Settings
	// HTTP serves what is not gRPC, GRPC the rest. GRPC is a grpc.Server.
	HTTP, GRPC http.Handler
	// Ready returns why the broker is not ready, or nil. The text is public.
	Ready func() error
	// Refused counts the connections above the limit of a client.
	Refused prometheus.Counter
}

// Run serves on the listener until ctx ends.
func (s Server) Run(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
		Protocols:   new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	server.Protocols.SetHTTP1(true)
	if s.Settings.CertFile == "" {
		server.Protocols.SetUnencryptedHTTP2(true)
	} else {
		server.Protocols.SetHTTP2(true)
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.Settings.certificate}
	}
	return service.ServeHTTP(ctx, server, limits.Listen(listener, perSource, s.Refused), stopTimeout)
}

// Handler returns the handler of all requests. The kubelet has no token, so that its probes need
// none.
func (s Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("/", s.authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.GRPC != nil && r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			s.GRPC.ServeHTTP(w, r)
			return
		}
		s.HTTP.ServeHTTP(w, r)
	})))
	return mux
}

// authenticate requires the token, if there is one.
func (s Server) authenticate(next http.Handler) http.Handler {
	if s.Settings.TokenFile == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want, err := s.Settings.token()
		if err != nil {
			http.Error(w, "the token of the broker cannot be read", http.StatusInternalServerError)
			return
		}
		scheme, got, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		// The digests have the same length, so that the time of the comparison shows nothing.
		a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "send the token of the broker: Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
