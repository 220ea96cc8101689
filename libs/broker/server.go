package broker

import (
	"bytes"
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
	"google.golang.org/grpc"

	"akri.sh/libs/limits"
)

const (
	// headerTimeout is that of kube-apiserver. A browser on a busy machine opens connections some
	// seconds before it sends requests.
	headerTimeout = 32 * time.Second
	idleTimeout   = 2 * time.Minute
	// maxConnections of all clients. An address can have them all until others connect, so that a
	// client without a token prevents none with one, and no probe of the kubelet.
	maxConnections = 128
	maxHeaderBytes = 16 << 10
	minTokenLength = 16
	// notReady is all that clients without a token learn: the reason can have addresses.
	notReady = "not ready: the log has the reason"
)

// Server serves a broker's data over HTTP and gRPC on one port.
type Server struct {
	// CertFile and KeyFile have the certificate of the server: TLS_CERT_FILE, TLS_KEY_FILE. They
	// are read at each handshake, so that a renewed certificate is used at once.
	CertFile, KeyFile string
	// TokenFile has the token that clients send: TOKEN_FILE. It is read at each request.
	TokenFile string
	// AllowPlainText is needed to serve without TLS or without a token: ALLOW_PLAIN_TEXT.
	AllowPlainText bool
}

// ReadServer returns the settings in the environment. It reports all errors at once.
func ReadServer(getenv func(string) string) (Server, error) {
	s := Server{CertFile: getenv("TLS_CERT_FILE"), KeyFile: getenv("TLS_KEY_FILE"), TokenFile: getenv("TOKEN_FILE")}
	var errs []error
	switch text := getenv("ALLOW_PLAIN_TEXT"); text {
	case "", "false":
	case "true":
		s.AllowPlainText = true
	default:
		errs = append(errs, fmt.Errorf("ALLOW_PLAIN_TEXT=%q: must be true or false", text))
	}

	const otherwise = "; or set ALLOW_PLAIN_TEXT=true, with which all clients that reach the Pod can read its data"
	switch {
	case (s.CertFile == "") != (s.KeyFile == ""):
		errs = append(errs, errors.New("TLS_CERT_FILE and TLS_KEY_FILE must both be set"))
	case s.CertFile != "":
		if _, err := s.certificate(nil); err != nil {
			errs = append(errs, err)
		}
	case !s.AllowPlainText:
		errs = append(errs, errors.New("TLS_CERT_FILE and TLS_KEY_FILE are not set: mount a Secret with a certificate"+otherwise))
	}
	if s.TokenFile != "" {
		if _, err := s.token(); err != nil {
			errs = append(errs, err)
		}
	} else if !s.AllowPlainText {
		errs = append(errs, errors.New("TOKEN_FILE is not set: mount a Secret with a token"+otherwise))
	}
	return s, errors.Join(errs...)
}

func (s Server) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	certificate, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("TLS_CERT_FILE=%s, TLS_KEY_FILE=%s: %w", s.CertFile, s.KeyFile, err)
	}
	return &certificate, nil
}

func (s Server) token() ([]byte, error) {
	content, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("TOKEN_FILE: %w", err)
	}
	token := bytes.TrimSpace(content)
	if len(token) < minTokenLength {
		return nil, fmt.Errorf("TOKEN_FILE=%s: the token has %d characters, at least %d are needed", s.TokenFile, len(token), minTokenLength)
	}
	return token, nil
}

// Serve serves until ctx ends. GET /healthz needs no token, for the probes of the kubelet: it
// returns the error of health. api may be nil.
func (s Server) Serve(
	ctx context.Context, listener net.Listener, health func() error, pages http.Handler, api *grpc.Server,
) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler: s.handler(health, pages, api), Protocols: &protocols,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		// A stream has no end of its own.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	if s.CertFile != "" {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate}
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	serve := func(l net.Listener) error { return server.Serve(l) }
	if server.TLSConfig != nil {
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"}) // of no registry
	limited := limits.Listen(listener, limits.Connections{PerSource: maxConnections, Total: maxConnections}, refused)
	if err := serve(limited); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func (s Server) handler(health func() error, pages http.Handler, api *grpc.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/healthz":
			serveHealth(w, health())
		case !s.authorized(r):
			// Browsers ask for a user name and a password, which is the token.
			w.Header().Set("WWW-Authenticate", `Basic realm="any user name; the token is the password", charset="UTF-8"`)
			http.Error(w, "a token is required: send it as bearer token, or as the password of any user", http.StatusUnauthorized)
		case api != nil && r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
			api.ServeHTTP(w, r)
		default:
			pages.ServeHTTP(w, r)
		}
	})
}

func serveHealth(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, notReady, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s Server) authorized(r *http.Request) bool {
	if s.TokenFile == "" {
		return true
	}
	token, err := s.token()
	if err != nil {
		return false
	}
	_, got, isBasic := r.BasicAuth()
	if !isBasic {
		scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return false
		}
		got = strings.TrimSpace(value)
	}
	want, sum := sha256.Sum256(token), sha256.Sum256([]byte(got))
	return subtle.ConstantTimeCompare(want[:], sum[:]) == 1
}
