// Package dracontroller publishes the devices of Instances for Dynamic Resource Allocation: a
// ResourceSlice for each device, and a DeviceClass for each Configuration and each Instance, so
// that Pods request the same extended resources as with device plugins. Any number of replicas can
// run. One leads, the others are on standby.
package dracontroller

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	"akri.sh/libs/kube"
	"akri.sh/libs/kube/leader"
	"akri.sh/libs/service"
	"akri.sh/services/dra-controller/internal/controller"
)

const leaseName = "akri-dra-controller"

// Config of the service.
type Config struct {
	kube.Flags
	LeaderElect    bool          `help:"Use leader election with the Lease akri-dra-controller. Required for more than one replica." default:"true"`
	Namespace      string        `help:"Namespace of the Lease." default:"default"`
	Identity       string        `help:"Holder of the Lease, unique among running processes. A process that restarts with the same identity leads at once. Empty: host name and a random UUID."`
	BindingTimeout time.Duration `help:"Time after which kube-scheduler gives up a ResourceClaim that was deleted while it bound the Pod. Pods that wait for the device are then retried." default:"125s"`
}

// Service is a dra-controller.
type Service struct {
	config  Config
	env     service.Env
	rest    *rest.Config
	cache   controller.Cache
	metrics *metrics
}

// New creates the clients. It starts nothing.
func New(config Config, env service.Env) (*Service, error) {
	restConfig, err := config.RESTConfig(env.Log)
	if err != nil {
		return nil, err
	}
	cache, err := controller.NewCache(restConfig)
	if err != nil {
		return nil, err
	}
	env.Health.AddReadiness("cache", kube.Synced(cache))
	return &Service{config: config, env: env, rest: restConfig, cache: cache, metrics: newMetrics(env.Metrics)}, nil
}

// Run runs the service until ctx ends. It returns an error if the process loses the leader
// election; the process must then restart.
func (s *Service) Run(ctx context.Context) error {
	return leader.Replica{
		Election: leader.Election{
			REST: s.rest, Namespace: s.config.Namespace, Name: leaseName, Identity: s.config.Identity, Log: s.env.Log,
		},
		Elect: s.config.LeaderElect,
		Cache: s.cache.Informers, Lead: s.lead, Leading: s.metrics.leading,
	}.Run(ctx)
}

func (s *Service) lead(ctx context.Context) error {
	controller.Run(ctx, controller.Options{
		Cache: s.cache, Log: s.env.Log, BindingTimeout: s.config.BindingTimeout, OnWrite: s.metrics.written,
	})
	return nil
}
