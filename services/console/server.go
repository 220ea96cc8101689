package console

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"akri.sh/libs/inspect/cache"
	"akri.sh/libs/inspect/console"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/reviews"
	"akri.sh/libs/limits"
	"akri.sh/libs/pki"
	"akri.sh/libs/service"
	"akri.sh/services/console/internal/access"
	"akri.sh/services/console/internal/session"
)

const (
	readHeaderTimeout = 5 * time.Second
	// writeTimeout does not apply to open pages.
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 32 << 10
	// maxConnections of all clients. An address can have them all until others connect: viewers
	// behind a proxy have one.
	maxConnections = 512
	stopTimeout    = 2 * time.Second
)

// newHandler returns the handler of all pages.
func newHandler(objects *cache.Cache, sessions *session.Sessions, reviewer *reviews.Reviewer) http.Handler {
	synced := kube.Synced(objects)
	mux := http.NewServeMux()
	sessions.Handle(mux)
	mux.Handle("/", console.Restricted(func(r *http.Request) (console.Viewer, http.Handler) {
		if synced(r.Context()) != nil {
			return console.Viewer{}, unavailable("The console has no complete list from the API server yet. Try again later.")
		}
		sender, refusal := sessions.Of(r)
		if refusal != nil {
			return console.Viewer{}, refusal
		}
		source, ok, err := access.Restrict(r.Context(), objects, func(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error) {
			return reviewer.Allowed(ctx, sender.User, reviews.Right{Verb: "list", Group: resource.Group, Resource: resource.Resource, Namespace: namespace})
		})
		switch {
		case err != nil:
			return console.Viewer{}, unavailable("The API server does not answer, so your rights cannot be verified. Try again later.")
		case !ok:
			return console.Viewer{}, forbidden(sender)
		default:
			return console.Viewer{Source: source, Name: sender.Username, CanLogOut: sender.CanLogOut}, nil
		}
	}))
	// SameSite protects the cookie, but not against a login with the token of another user.
	return console.Headers(http.NewCrossOriginProtection().Handler(mux))
}

func forbidden(sender session.Session) http.Handler {
	refusal := session.Forbidden{Session: sender}
	for _, resource := range access.Devices {
		refusal.Resources = append(refusal.Resources, resource.String())
	}
	return refusal
}

func unavailable(message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Refresh", "5")
		http.Error(w, message, http.StatusServiceUnavailable)
	})
}

// checkPlain returns an error unless the address is empty or one of the loopback interface.
func checkPlain(address string) error {
	if address == "" {
		return nil
	}
	parsed, err := netip.ParseAddrPort(address)
	if err != nil || !parsed.Addr().IsLoopback() {
		return fmt.Errorf("--plain-address %q: must be an address of the loopback interface, such as 127.0.0.1:8081", address)
	}
	return nil
}

func (s *Service) server(ctx context.Context) *http.Server {
	errorLog, err := zap.NewStdLogAt(s.log, zap.DebugLevel)
	if err != nil {
		panic(err) // an unknown level
	}
	return &http.Server{
		Handler: s.handler, ErrorLog: errorLog,
		ReadHeaderTimeout: readHeaderTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return ctx }, // ends the streams
	}
}

// serve serves until ctx ends, in plain text if there is no certificate.
func (s *Service) serve(ctx context.Context, listener net.Listener, certificate pki.Source) error {
	server := s.server(ctx)
	if certificate != nil {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate}
	}
	limited := limits.Listen(listener, limits.Connections{PerSource: maxConnections, Total: maxConnections}, s.refusedConnections)
	if err := service.ServeHTTP(ctx, server, limited, stopTimeout); err != nil {
		return fmt.Errorf("serve pages: %w", err)
	}
	return nil
}
