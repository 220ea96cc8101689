// Package brokercontroller turns Instances into broker Pods, Jobs and Services, and keeps them as the Configurations
// ask. Any number of replicas may run: one leads, the others are ready to.
package brokercontroller

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"akri.sh/libs/kube"
	"akri.sh/libs/service"
	"akri.sh/services/broker-controller/internal/admission"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/controller"
	"akri.sh/services/broker-controller/internal/webhook"
)

const (
	leaseName     = "akri-broker-controller"
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Config of the service.
type Config struct {
	kube.Flags
	LeaderElect bool          `help:"Work only while holding the Lease akri-broker-controller; without it, run one replica." default:"true"`
	Namespace   string        `help:"Namespace of the Lease." default:"default"`
	Identity    string        `help:"Holder of the Lease: unlike that of any process that runs beside this one, and the same after a restart in place, which leads on at once. Empty: made up."`
	PendingMax  time.Duration `help:"How long a broker Pod may be pending on its node before it is replaced." default:"5m"`
	Webhook     WebhookConfig `embed:"" prefix:"webhook-"`
}

// WebhookConfig is for the review of Configurations.
type WebhookConfig struct {
	Address         string `help:"Where to serve the review of Configurations; empty: not at all." placeholder:":8443"`
	Name            string `help:"Name of the Service and the ValidatingWebhookConfiguration." default:"akri-webhook-configuration"`
	Secret          string `help:"Name of the Secret with the certificate, in --namespace." default:"akri-webhook-configuration"`
	MakeCertificate bool   `help:"Make and renew the certificate in the Secret; without it, somebody else does." default:"true"`
	// URL is where tests are found.
	URL string `kong:"-"`
}

// Service is a broker-controller.
type Service struct {
	config  Config
	env     service.Env
	rest    *rest.Config
	clients cluster.Clients
	cache   cluster.Cache
	metrics *metrics
	// webhook is nil when it is switched off.
	webhook *webhook.Webhook
}

// New checks the configuration and creates the clients. It starts nothing.
func New(config Config, env service.Env) (*Service, error) {
	if config.PendingMax <= 0 {
		return nil, fmt.Errorf("--pending-max must be positive, not %s", config.PendingMax)
	}
	access, err := config.RESTConfig(env.Log)
	if err != nil {
		return nil, err
	}
	clients, err := cluster.NewClients(access)
	if err != nil {
		return nil, err
	}
	cache, err := cluster.NewCache(clients)
	if err != nil {
		return nil, err
	}
	s := &Service{config: config, env: env, rest: access, clients: clients, cache: cache, metrics: newMetrics(env.Metrics, cache)}
	env.Health.AddReadiness("cache", func(context.Context) error {
		if !cache.HasSynced() {
			return kube.ErrNotSynced
		}
		return nil
	})
	if config.Webhook.Address == "" {
		return s, nil
	}
	if s.webhook, err = s.newWebhook(access); err != nil {
		return nil, err
	}
	env.Health.AddReadiness("webhook", s.webhook.Ready)
	return s, nil
}

func (s *Service) newWebhook(access *rest.Config) (*webhook.Webhook, error) {
	config := s.config.Webhook
	log := s.env.Log.With(zap.String("webhook", config.Name))
	reviewer := admission.Reviewer{Schema: admission.ClusterSchema{REST: s.clients.REST}}
	return webhook.New(access, webhook.Settings{
		Address: config.Address, Namespace: s.config.Namespace, Name: config.Name, Secret: config.Secret,
		MakeCertificate: config.MakeCertificate, URL: config.URL,
		Handler: admission.Handler(reviewer, log, s.metrics.reviewed), Log: log,
	})
}

// Run works until ctx ends. It returns an error when it loses the leader election: the process should start anew.
func (s *Service) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { s.cache.Run(ctx); return nil })
	if s.webhook != nil {
		group.Go(func() error { return s.webhook.Run(ctx) })
	}
	group.Go(func() error {
		defer cancel()
		if kube.WaitForSync(ctx, s.cache) != nil {
			return nil // told to stop
		}
		return s.elected(ctx)
	})
	return group.Wait()
}

func (s *Service) elected(ctx context.Context) error {
	if !s.config.LeaderElect {
		return s.lead(ctx)
	}
	identity, err := s.identity()
	if err != nil {
		return err
	}
	election := cluster.Election{
		REST: s.rest, Namespace: s.config.Namespace, Name: leaseName, Identity: identity,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, Log: s.env.Log,
	}
	return election.Run(ctx, s.lead)
}

func (s *Service) identity() (string, error) {
	if s.config.Identity != "" {
		return s.config.Identity, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("get host name: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

func (s *Service) lead(ctx context.Context) error {
	s.metrics.leading.Set(1)
	defer s.metrics.leading.Set(0)
	events := cluster.NewRecorder(s.clients)
	defer events.Stop()
	group, ctx := errgroup.WithContext(ctx)
	if s.webhook != nil {
		group.Go(func() error { s.webhook.Maintain(ctx); return nil })
	}
	group.Go(func() error {
		return controller.Run(ctx, controller.Settings{
			Clients: s.clients, Cache: s.cache, Events: events, Log: s.env.Log,
			Written: s.metrics.written, StuckAfter: s.config.PendingMax,
		})
	})
	return group.Wait()
}
