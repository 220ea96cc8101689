// Package dracontroller publishes the devices of Instances for Dynamic Resource Allocation: a
// ResourceSlice for each device, and a DeviceClass for each Configuration and each Instance, so
// that Pods request the same extended resources as with device plugins. It can also make kubelets
// repeat preparations of claims. Any number of replicas can run. One leads, the others are on
// standby.
package dracontroller

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"akri.sh/libs/kube"
	"akri.sh/libs/kube/leader"
	"akri.sh/libs/kube/resources"
	"akri.sh/libs/service"
	"akri.sh/services/dra-controller/internal/controller"
	"akri.sh/services/dra-controller/internal/preparations"
)

const leaseName = "akri-dra-controller"

// Config of the service.
type Config struct {
	kube.Flags
	LeaderElect       bool          `help:"Use leader election with the Lease akri-dra-controller. Required for more than one replica." default:"true"`
	Namespace         string        `help:"Namespace of the Lease." default:"default"`
	NodeNamespace     string        `help:"Namespace of the services of nodes. Empty: that of --namespace." placeholder:"NAME"`
	Identity          string        `help:"Holder of the Lease, unique among running processes. A process that restarts with the same identity leads at once. Empty: host name and a random UUID."`
	Resources         string        `help:"How Pods get devices: dra, or auto: the leader decides it once, and records it in the ConfigMap akri-resources." default:"dra" enum:"dra,auto"`
	RetryPreparations bool          `help:"Make kubelets repeat the preparations of claims that failed while dra-kubelet-plugin was not there, by an annotation of the Pods. It needs rights on Pods."`
	BindingTimeout    time.Duration `help:"Time after which kube-scheduler gives up a ResourceClaim that was deleted while it bound the Pod. Pods that wait for the device are then retried." default:"125s"`
}

// Service is a dra-controller.
type Service struct {
	config Config
	env    service.Env
	rest   *rest.Config
	cache  controller.Cache
	// required are the informers without which the process does not lead.
	required kube.Informers
	metrics  *metrics
	// preparations is nil unless kubelets are made to repeat failed preparations.
	preparations *preparations.Cache
	// auto is nil unless the cluster decides how Pods get devices.
	auto *auto
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
	s := &Service{
		config: config, env: env, rest: restConfig, cache: cache, required: slices.Concat(cache.General, cache.DRA), metrics: newMetrics(env.Metrics),
	}
	if config.RetryPreparations {
		if s.preparations, err = preparations.NewCache(restConfig, cmp.Or(config.NodeNamespace, config.Namespace)); err != nil {
			return nil, err
		}
	}
	if config.Resources == resourcesAuto {
		if s.auto, err = newAuto(s); err != nil {
			return nil, err
		}
		env.Metrics.MustRegister(s.auto.record.Existence())
		s.required = slices.Concat(cache.General, kube.Informers{s.auto.record})
	}
	env.Health.AddReadiness("cache", kube.Synced(s.required))
	return s, nil
}

// Run runs the service until ctx ends. It returns an error if the process loses the leader
// election; the process must then restart.
func (s *Service) Run(ctx context.Context) error {
	replica := leader.Replica{
		Election: leader.Election{
			REST: s.rest, Namespace: s.config.Namespace, Name: leaseName, Identity: s.config.Identity, Log: s.env.Log,
		},
		Elect: s.config.LeaderElect,
		Cache: s.required, Lead: s.lead, Leading: s.metrics.leading,
	}
	if s.auto != nil {
		replica.All, replica.Lead = append(replica.All, s.auto.follow), s.auto.lead
	}
	return replica.Run(ctx)
}

// lead publishes devices. If the right to retry preparations is missing, it does only that.
func (s *Service) lead(ctx context.Context) error {
	var group sync.WaitGroup
	if s.preparations != nil {
		group.Go(func() {
			preparations.Run(ctx, preparations.Options{
				Cache: s.preparations, Claims: s.cache.Claims, Log: s.env.Log, OnWrite: s.metrics.written,
			})
		})
	}
	controller.Run(ctx, controller.Options{
		Cache: s.cache, Log: s.env.Log, BindingTimeout: s.config.BindingTimeout, OnWrite: s.metrics.written, Record: s.record(),
	})
	group.Wait()
	return nil
}

func (s *Service) record() *resources.Record {
	if s.auto == nil {
		return nil
	}
	return s.auto.record
}
