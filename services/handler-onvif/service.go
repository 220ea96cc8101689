// Package onvif is the Discovery Handler for IP cameras that speak ONVIF.
package onvif

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"akri.sh/libs/handler"
	"akri.sh/libs/service"
	"akri.sh/services/handler-onvif/internal/multicast"
	"akri.sh/services/handler-onvif/internal/soap"
	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

// Config is what the handler is told by flags and environment.
type Config struct {
	handler.Flags

	Interfaces     []string      `help:"Interfaces to find cameras on: names or globs, after '!' those to leave out." default:"!lo,!veth*,!cali*,!lxc*" placeholder:"GLOB"`
	Interval       time.Duration `help:"How often to probe the network and to check on each camera." default:"10s"`
	RequestTimeout time.Duration `help:"How long a camera may take to answer a question." default:"3s"`
	Concurrency    int           `help:"Most questions to cameras at once; as many again to those that never answered." default:"32"`
	TLSCAFile      string        `name:"tls-ca-file" help:"PEM file of authorities that must have signed the certificates of cameras with https; none: certificates are not checked." placeholder:"FILE"`
}

// Service is the handler.
type Service struct {
	choice multicast.InterfaceFilter
	census *census
	server *handler.Server
	log    *zap.Logger
}

// New returns the handler, ready to run.
func New(config Config, env service.Env) (*Service, error) {
	choice, choiceErr := multicast.ParseInterfaceFilter(config.Interfaces)
	authorities, authoritiesErr := readAuthorities(config.TLSCAFile)
	if err := errors.Join(config.validate(), choiceErr, authoritiesErr); err != nil {
		return nil, err
	}
	metrics := newMetrics(env.Metrics)
	options := soap.Options{
		Timeout: config.RequestTimeout, Concurrency: config.Concurrency, Authorities: authorities, Observe: metrics.answered,
	}
	census := newCensus(config.Interval, soap.NewClient(options), soap.NewClient(options), metrics, env.Log)
	discover := func(ctx context.Context, request handler.Request, send handler.Send) error {
		return discover(ctx, census, request, send)
	}
	// Shared: every node of a network sees the same cameras.
	server, err := handler.New(handler.Identity{Name: "onvif", Shared: true}, config.Flags, handler.Watch(discover), env)
	if err != nil {
		return nil, err
	}
	return &Service{choice: choice, census: census, server: server, log: env.Log}, nil
}

func (c Config) validate() error {
	var problems []error
	if c.Interval < time.Second {
		problems = append(problems, fmt.Errorf("--interval %s: want at least 1s", c.Interval))
	}
	if c.RequestTimeout <= 0 {
		problems = append(problems, fmt.Errorf("--request-timeout %s: want more than 0", c.RequestTimeout))
	}
	if c.Concurrency < 1 {
		problems = append(problems, fmt.Errorf("--concurrency %d: want at least 1", c.Concurrency))
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
		return nil, fmt.Errorf("--tls-ca-file %q: no certificate in it", file)
	}
	return pool, nil
}

// Run finds cameras and serves until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.find(ctx) })
	group.Go(func() error { return s.server.Run(ctx) })
	return group.Wait()
}

func (s *Service) find(ctx context.Context) error {
	group := multicast.Group{V4: wsdiscovery.Group4, V6: wsdiscovery.Group6, Port: wsdiscovery.Port}
	link, err := multicast.Open(ctx, group, s.choice, s.log)
	if err != nil {
		return err
	}
	return s.census.run(ctx, link)
}
