// Package onvif is the Discovery Handler for ONVIF cameras.
package onvif

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"akri.sh/libs/handler"
	"akri.sh/libs/handler/address"
	"akri.sh/libs/onvif"
	"akri.sh/libs/service"
	"akri.sh/services/handler-onvif/internal/cameras"
	"akri.sh/services/handler-onvif/internal/discovery"
	"akri.sh/services/handler-onvif/internal/multicast"
	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

// Config holds the flags of the handler.
type Config struct {
	handler.Flags

	Interfaces     []string       `help:"Network interfaces with cameras: names or globs, with '!' in front to exclude." default:"!lo,!veth*,!cali*,!lxc*" placeholder:"GLOB"`
	Interval       time.Duration  `help:"Interval of probes, and of checks of each camera." default:"10s"`
	RequestTimeout time.Duration  `help:"Timeout of a request to a camera." default:"3s"`
	Concurrency    int            `help:"Maximum number of concurrent requests to cameras. The same number applies to endpoints that never answered." default:"32"`
	MaxPerHost     int            `help:"Maximum number of cameras of one host." default:"64"`
	AllowNetworks  []netip.Prefix `help:"Networks that the addresses of cameras may be in, besides the network of the interface that received them." placeholder:"CIDR"`
	TLSCAFile      string         `name:"tls-ca-file" help:"PEM file with the authorities of the certificates of https cameras. Empty: certificates are not verified." placeholder:"FILE"`
}

// Service is the handler.
type Service struct {
	filter multicast.InterfaceFilter
	prober *discovery.Prober
	server *handler.Server
	log    *zap.Logger
}

// New returns a Service.
func New(config Config, env service.Env) (*Service, error) {
	filter, filterErr := multicast.ParseInterfaceFilter(config.Interfaces)
	authorities, authoritiesErr := readAuthorities(config.TLSCAFile)
	if err := errors.Join(config.validate(), filterErr, authoritiesErr); err != nil {
		return nil, err
	}
	metrics := newMetrics(env.Metrics)
	options := onvif.Options{
		Timeout: config.RequestTimeout, Concurrency: config.Concurrency, Authorities: authorities,
		Control: address.Control, Observe: metrics.countRequest,
	}
	prober := discovery.NewProber(discovery.Options{
		Options: cameras.Options{
			Interval: config.Interval, MaxPerHost: config.MaxPerHost, Policy: address.NewPolicy(config.AllowNetworks),
		},
		Client: onvif.NewClient(options), UnverifiedClient: onvif.NewClient(options),
		Metrics: metrics.Metrics, Log: env.Log,
	})
	// Shared, because all nodes of a network find the same cameras.
	identity := handler.Identity{Name: "onvif", Shared: true}
	server, err := handler.New(identity, config.Flags, prober, env)
	if err != nil {
		return nil, err
	}
	return &Service{filter: filter, prober: prober, server: server, log: env.Log}, nil
}

func (c Config) validate() error {
	var problems []error
	if c.Interval < time.Second {
		problems = append(problems, fmt.Errorf("--interval %s: must be at least 1s", c.Interval))
	}
	if c.RequestTimeout <= 0 {
		problems = append(problems, fmt.Errorf("--request-timeout %s: must be more than 0", c.RequestTimeout))
	}
	if c.Concurrency < 1 {
		problems = append(problems, fmt.Errorf("--concurrency %d: must be at least 1", c.Concurrency))
	}
	if c.MaxPerHost < 1 {
		problems = append(problems, fmt.Errorf("--max-per-host %d: must be at least 1", c.MaxPerHost))
	}
	return errors.Join(problems...)
}

func readAuthorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca-file %q: must contain a PEM certificate", file)
	}
	return pool, nil
}

// Run serves until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.probe(ctx) })
	group.Go(func() error { return s.server.Run(ctx) })
	return group.Wait()
}

func (s *Service) probe(ctx context.Context) error {
	conn, err := multicast.Open(ctx, wsdiscovery.Groups, s.filter, s.log)
	if err != nil {
		return err
	}
	return s.prober.Run(ctx, conn)
}
