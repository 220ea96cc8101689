// Package brokercontroller creates the broker Pods, Jobs and Services of Instances and reconciles
// them with the Configurations. Any number of replicas can run. One leads, the others are on
// standby.
package brokercontroller

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/leader"
	"akri.sh/libs/kube/scrape"
	"akri.sh/libs/pki"
	"akri.sh/libs/service"
	"akri.sh/services/broker-controller/internal/admission"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/controller"
	"akri.sh/services/broker-controller/internal/namespaces"
	"akri.sh/services/broker-controller/internal/verdicts"
	"akri.sh/services/broker-controller/internal/webhook"
)

const leaseName = "akri-broker-controller"

// Config of the service.
type Config struct {
	kube.Flags
	LeaderElect        bool          `help:"Use leader election with the Lease akri-broker-controller. Required for more than one replica." default:"true"`
	Namespace          string        `help:"Namespace of the Lease and of the webhook's Secret and Service." default:"default"`
	NodeNamespace      string        `help:"Namespace of the services of nodes. Empty: that of --namespace." placeholder:"NAME"`
	Identity           string        `help:"Holder of the Lease, unique among running processes. A process that restarts with the same identity leads at once. Empty: host name and a random UUID."`
	PendingMax         time.Duration `help:"Maximum time that a broker Pod may be pending on its node before it is replaced." default:"5m"`
	BrokerStartTimeout time.Duration `help:"Maximum time that a broker Pod may be unable to be scheduled or started on its node before another node that sees the device gets the broker." default:"30s"`
	PublicationTimeout time.Duration `help:"Maximum time for which the brokers of a new Instance wait until its device is published for Dynamic Resource Allocation. 0: they do not wait, and the service needs no right to list DeviceClasses." default:"0s"`
	AllowedNamespaces  []string      `help:"ValidatingAdmissionPolicies into which to write the allowed namespaces of Configurations: akri-allowed-namespaces for Pods, akri-allowed-namespaces-of-claims for ResourceClaims." placeholder:"NAME"`
	Webhook            WebhookConfig `embed:"" prefix:"webhook-"`
	Metrics            scrape.Config `embed:"" prefix:"metrics-"`
}

// WebhookConfig is the part of the Config for the validating webhook.
type WebhookConfig = webhook.Config

// Service is a broker-controller.
type Service struct {
	config  Config
	env     service.Env
	rest    *rest.Config
	schema  *admission.ClusterSchema
	clients cluster.Clients
	cache   cluster.Cache
	// dra has the DeviceClasses, if brokers wait for them.
	dra     kube.Optional
	metrics *metrics
	// webhook is nil if it is disabled.
	webhook    *webhook.Webhook
	publishers []*namespaces.Publisher
}

// New validates the configuration and creates the clients. It starts nothing.
func New(config Config, env service.Env) (*Service, error) {
	if config.PendingMax <= 0 {
		return nil, fmt.Errorf("--pending-max %s: must be positive", config.PendingMax)
	}
	if config.BrokerStartTimeout <= 0 {
		return nil, fmt.Errorf("--broker-start-timeout %s: must be positive", config.BrokerStartTimeout)
	}
	if config.PublicationTimeout < 0 {
		return nil, fmt.Errorf("--publication-timeout %s: must not be negative", config.PublicationTimeout)
	}
	restConfig, err := config.RESTConfig(env.Log)
	if err != nil {
		return nil, err
	}
	clients, err := cluster.NewClients(restConfig)
	if err != nil {
		return nil, err
	}
	cache := cluster.NewCache(clients, config.Namespace, cmp.Or(config.NodeNamespace, config.Namespace))
	s := &Service{
		config: config, env: env, rest: restConfig, schema: admission.NewClusterSchema(clients.REST), clients: clients, cache: cache, metrics: newMetrics(env.Metrics, cache),
	}
	s.dra.Server, s.dra.Version = clients.REST, cluster.DeviceClasses.GroupVersion()
	if config.PublicationTimeout > 0 {
		s.dra.Informers = kube.Informers{cache.DeviceClasses}
	}
	env.Health.AddReadiness("cache", kube.Synced(cache))
	for _, policy := range config.AllowedNamespaces {
		publisher, err := namespaces.New(restConfig, policy, config.Namespace, cache.Configurations, env.Log, s.metrics.written)
		if err != nil {
			return nil, fmt.Errorf("--allowed-namespaces: %w", err)
		}
		env.Metrics.MustRegister(publisher.Existence())
		s.publishers = append(s.publishers, publisher)
	}
	if config.Webhook.Address == "" {
		if config.Metrics.Address != "" {
			return nil, errors.New("--metrics-address: requires --webhook-address, whose certificate it uses")
		}
		return s, nil
	}
	if s.webhook, err = s.newWebhook(); err != nil {
		return nil, err
	}
	env.Health.AddReadiness("webhook", s.webhook.Ready)
	env.Metrics.MustRegister(s.webhook.Existence()...)
	env.Metrics.MustRegister(pki.Expiry("Expiry of the certificate of the webhook in seconds since 1970.",
		map[string]func() *x509.Certificate{"webhook": s.webhook.Certificate().Leaf}))
	// The metrics name Configurations of all namespaces.
	if err := scrape.Enable(config.Metrics, env, restConfig, s.webhook.Certificate()); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Service) newWebhook() (*webhook.Webhook, error) {
	config := s.config.Webhook
	log := s.env.Log.With(zap.String("webhook", config.Name))
	return webhook.New(s.rest, webhook.Options{
		Config: config, Namespace: s.config.Namespace, Handler: admission.Handler(s.reviewer(), log, s.metrics.reviewed), Log: log,
		RefusedConnections: s.metrics.refusedConnections,
	})
}

func (s *Service) reviewer() admission.Reviewer {
	return admission.Reviewer{Schema: s.schema, DenyInvalidDetails: s.config.Webhook.InvalidDetails == webhook.Deny}
}

// needs returns the objects that the chart has created for this service.
func (s *Service) needs() []akriv0.Subject {
	if s.webhook == nil || s.config.Webhook.URL != "" {
		return nil
	}
	return []akriv0.Subject{{Kind: "Service", Namespace: s.config.Namespace, Name: s.config.Webhook.Name}}
}

// Run runs the service until ctx ends. A leader that loses its Lease stops to lead and is a
// candidate again. It does not exit, because the webhook would be away until the API server has
// answered the requests of a new process.
func (s *Service) Run(ctx context.Context) error {
	replica := leader.Replica{
		Election: leader.Election{
			REST: s.rest, Namespace: s.config.Namespace, Name: leaseName, Identity: s.config.Identity, Log: s.env.Log,
		},
		Elect:           s.config.LeaderElect,
		StandbyWhenLost: true, Cache: s.cache.Informers, Lead: s.lead, Leading: s.metrics.leading,
	}
	replica.All = append(replica.All, func(ctx context.Context) error { s.dra.Run(ctx); return nil })
	if s.webhook != nil {
		replica.All = append(replica.All, s.webhook.Run)
	}
	for _, publisher := range s.publishers {
		replica.All = append(replica.All, func(ctx context.Context) error { publisher.Watch(ctx); return nil })
	}
	return replica.Run(ctx)
}

func (s *Service) lead(ctx context.Context) error {
	events, stop, err := cluster.NewRecorder(s.rest)
	if err != nil {
		return err
	}
	defer stop()
	var group sync.WaitGroup
	if s.webhook != nil {
		group.Go(func() { s.webhook.Lead(ctx) })
	}
	for _, publisher := range s.publishers {
		group.Go(func() { publisher.Lead(ctx) })
	}
	group.Go(func() {
		if kube.WaitForSync(ctx, &s.dra) != nil {
			return // ctx ended
		}
		controller.Run(ctx, controller.Options{
			Clients: s.clients, Cache: s.cache, Events: events, Log: s.env.Log,
			Reviewer: s.reviewer(), Verdicts: verdicts.New(s.clients, s.cache, s.needs(), s.metrics.verdicts, s.env.Log),
			OnWrite: s.metrics.written, StuckAfter: s.config.PendingMax, StartTimeout: s.config.BrokerStartTimeout, PublicationTimeout: s.config.PublicationTimeout,
		})
	})
	group.Wait()
	return nil
}
