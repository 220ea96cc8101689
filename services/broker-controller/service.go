// Package brokercontroller creates the broker Pods, Jobs and Services of Instances and reconciles
// them with the Configurations. Any number of replicas can run. One leads, the others are on
// standby.
package brokercontroller

import (
	"cmp"
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
	"akri.sh/services/broker-controller/internal/namespaces"
	"akri.sh/services/broker-controller/internal/webhook"
)

const (
	leaseName = "akri-broker-controller"
	// A standby replica sees the last renewal at most one retry late, and the expiry at most one
	// retry late. client-go makes a retry up to 2.2 times the period. So a takeover takes at most
	// 12 s + 2 x 3.3 s = 18.6 s.
	leaseDuration = 12 * time.Second
	renewDeadline = 8 * time.Second
	retryPeriod   = 1500 * time.Millisecond
	// defaultSettleTime is more than the delay with which API servers get a changed registration of
	// the webhook.
	defaultSettleTime = 5 * time.Second
)

// Config of the service.
type Config struct {
	kube.Flags
	LeaderElect        bool          `help:"Use leader election with the Lease akri-broker-controller. Required for more than one replica." default:"true"`
	Namespace          string        `help:"Namespace of the Lease and of the webhook's Secret and Service." default:"default"`
	Identity           string        `help:"Holder of the Lease, unique among running processes. A process that restarts with the same identity leads at once. Empty: host name and a random UUID."`
	PendingMax         time.Duration `help:"Maximum time that a broker Pod may be pending on its node before it is replaced." default:"5m"`
	BrokerStartTimeout time.Duration `help:"Maximum time that a broker Pod may be unable to be scheduled or started on its node before another node that sees the device gets the broker." default:"30s"`
	AllowedNamespaces  string        `help:"Name of the ConfigMap in which to publish the allowed namespaces of Configurations. Empty: none." placeholder:"NAME"`
	Webhook            WebhookConfig `embed:"" prefix:"webhook-"`
}

// WebhookConfig is the part of the Config for the validating webhook.
type WebhookConfig struct {
	Address         string `help:"Address of the validating webhook for Configurations. Empty disables it." placeholder:"HOST:PORT"`
	Name            string `help:"Name of the webhook's Service and ValidatingWebhookConfiguration." default:"akri-webhook-configuration"`
	Secret          string `help:"Name of the Secret with the webhook's certificate." default:"akri-webhook-configuration"`
	MakeCertificate bool   `help:"Create and renew the certificate in the Secret. Disable it for certificates of cert-manager." default:"true"`
	Authorize       bool   `help:"Check that authors of Configurations have the rights that Akri uses for them." default:"true"`
	ClientCA        string `name:"client-ca" help:"File with the CA certificates of the client certificates of API servers. Empty: any client may send reviews." placeholder:"FILE"`
	// URL and SettleTime replace the Service and defaultSettleTime in tests.
	URL        string        `kong:"-"`
	SettleTime time.Duration `kong:"-"`
}

// Service is a broker-controller.
type Service struct {
	config  Config
	env     service.Env
	rest    *rest.Config
	schema  *admission.ClusterSchema
	clients cluster.Clients
	cache   cluster.Cache
	metrics *metrics
	// webhook is nil if it is disabled.
	webhook *webhook.Webhook
}

// New validates the configuration and creates the clients. It starts nothing.
func New(config Config, env service.Env) (*Service, error) {
	if config.PendingMax <= 0 {
		return nil, fmt.Errorf("--pending-max %s: must be positive", config.PendingMax)
	}
	if config.BrokerStartTimeout <= 0 {
		return nil, fmt.Errorf("--broker-start-timeout %s: must be positive", config.BrokerStartTimeout)
	}
	restConfig, err := config.RESTConfig(env.Log)
	if err != nil {
		return nil, err
	}
	clients, err := cluster.NewClients(restConfig)
	if err != nil {
		return nil, err
	}
	cache := cluster.NewCache(clients)
	s := &Service{
		config: config, env: env, rest: restConfig, schema: admission.NewClusterSchema(clients.REST), clients: clients, cache: cache, metrics: newMetrics(env.Metrics, cache),
	}
	env.Health.AddReadiness("cache", kube.Synced(cache))
	if config.Webhook.Address == "" {
		return s, nil
	}
	if s.webhook, err = s.newWebhook(); err != nil {
		return nil, err
	}
	env.Health.AddReadiness("webhook", s.webhook.Ready)
	env.Metrics.MustRegister(certificateExpiry(s.webhook.Served))
	return s, nil
}

func (s *Service) newWebhook() (*webhook.Webhook, error) {
	config := s.config.Webhook
	log := s.env.Log.With(zap.String("webhook", config.Name))
	reviewer := s.reviewer()
	reviewer.Others = s.cache.Configurations.List
	if config.Authorize {
		authorizer, err := admission.NewAccessReviews(s.rest)
		if err != nil {
			return nil, err
		}
		reviewer.Authorizer = authorizer
	}
	return webhook.New(s.rest, webhook.Options{
		Address: config.Address, Namespace: s.config.Namespace, Name: config.Name, Secret: config.Secret,
		MakeCertificate: config.MakeCertificate, ClientCA: config.ClientCA, URL: config.URL,
		SettleTime: cmp.Or(config.SettleTime, defaultSettleTime),
		Handler:    admission.Handler(reviewer, log, s.metrics.reviewed), Log: log,
	})
}

// reviewer returns a Reviewer of stored specs, whose authors are not known.
func (s *Service) reviewer() admission.Reviewer {
	return admission.Reviewer{Schema: s.schema}
}

// Run runs the service until ctx ends. It returns an error if the process loses the leader
// election; the process must then restart.
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
			return nil // ctx ended
		}
		return s.elect(ctx)
	})
	return group.Wait()
}

// elect calls lead when this process is the leader.
func (s *Service) elect(ctx context.Context) error {
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
	events, err := cluster.NewRecorder(s.rest)
	if err != nil {
		return err
	}
	defer events.Stop()
	s.metrics.leading.Set(1)
	defer s.metrics.leading.Set(0)
	group, ctx := errgroup.WithContext(ctx)
	if s.webhook != nil {
		group.Go(func() error { s.webhook.Lead(ctx); return nil })
	}
	if s.config.AllowedNamespaces != "" {
		publisher, err := namespaces.New(s.rest, namespaces.Options{
			Namespace: s.config.Namespace, Name: s.config.AllowedNamespaces, Configurations: s.cache.Configurations,
			Log: s.env.Log, OnWrite: s.metrics.written,
		})
		if err != nil {
			return err
		}
		group.Go(func() error { publisher.Run(ctx); return nil })
	}
	group.Go(func() error {
		return controller.Run(ctx, controller.Options{
			Clients: s.clients, Cache: s.cache, Events: events, Reviewer: s.reviewer(), Log: s.env.Log,
			OnWrite: s.metrics.written, StuckAfter: s.config.PendingMax,
			StartTimeout: s.config.BrokerStartTimeout,
		})
	})
	return group.Wait()
}
