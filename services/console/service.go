// Package console serves the pages of kubectl akri console in the cluster. A viewer logs in with a
// token of the API server and sees what its user may list. Any number of replicas can run: they
// keep nothing that another one needs.
package console

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"akri.sh/libs/inspect/cache"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/reviews"
	"akri.sh/libs/pki"
	"akri.sh/libs/service"
	"akri.sh/services/console/internal/session"
)

// Config of the service.
type Config struct {
	kube.Flags

	Address      string    `help:"Address of the pages, with TLS. Empty: disabled." default:":8443" placeholder:"HOST:PORT"`
	PlainAddress string    `help:"Loopback address of the pages in plain text, for a proxy with TLS in the same Pod. Empty: disabled." placeholder:"HOST:PORT"`
	Namespace    string    `help:"Namespace of the Service." default:"default"`
	Claims       bool      `help:"Also explain Pods with ResourceClaims, if the API server has Dynamic Resource Allocation."`
	TLS          TLSConfig `embed:"" prefix:"tls-"`
}

// TLSConfig selects the server certificate.
type TLSConfig struct {
	Dir     string `help:"Directory with tls.crt and tls.key, which are read at each handshake. Empty: a certificate that the console makes itself, which browsers do not trust." placeholder:"DIR"`
	Service string `help:"Name of the Service in the certificate that the console makes." default:"akri-console"`
}

// Service is a console.
type Service struct {
	config  Config
	log     *zap.Logger
	cache   *cache.Cache
	handler http.Handler
	secured pki.Source // nil if disabled

	refusedConnections prometheus.Counter
}

// New returns a Service. It opens no connection.
func New(config Config, env service.Env) (*Service, error) {
	if err := checkPlain(config.PlainAddress); err != nil {
		return nil, err
	}
	restConfig, err := config.RESTConfig(env.Log)
	if err != nil {
		return nil, err
	}
	objects, err := cache.NewOfAll(restConfig, config.Claims)
	if err != nil {
		return nil, err
	}
	metrics := newMetrics(env.Metrics)
	reviewer, err := reviews.NewReviewer(restConfig, func(resource, result string) {
		metrics.reviews.WithLabelValues(resource, result).Inc()
	})
	if err != nil {
		return nil, err
	}
	sessions := session.New(session.Options{
		User: reviewer.User, Log: env.Log, Login: func(result string) { metrics.logins.WithLabelValues(result).Inc() },
	})
	env.Health.AddReadiness("cache", kube.Synced(objects))
	s := &Service{
		config: config, log: env.Log, cache: objects, handler: newHandler(objects, sessions, reviewer),
		refusedConnections: metrics.refusedConnections,
	}
	if config.Address != "" {
		s.secured = newCertificate(config, env.Log)
		env.Health.AddReadiness("certificate", s.secured.Ready)
		env.Metrics.MustRegister(certificateExpiry(s.secured.Leaf))
	}
	return s, nil
}

// Run serves until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var secured, plain net.Listener
	var err error
	if s.secured != nil {
		if secured, err = listen(ctx, s.config.Address); err != nil {
			return err
		}
		defer secured.Close()
	}
	if s.config.PlainAddress != "" {
		if plain, err = listen(ctx, s.config.PlainAddress); err != nil {
			return err
		}
		defer plain.Close()
		s.log.Warn("serving plain text; only a proxy in this Pod must reach it", zap.String("address", s.config.PlainAddress))
	}
	return s.Serve(ctx, secured, plain)
}

// Serve is Run with listeners of the servers that are enabled. It closes them.
func (s *Service) Serve(ctx context.Context, secured, plain net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { s.cache.Run(ctx); return nil })
	if secured != nil {
		group.Go(func() error { return s.serve(ctx, secured, s.secured) })
	}
	if plain != nil {
		group.Go(func() error { return s.serve(ctx, plain, nil) })
	}
	return group.Wait()
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}
