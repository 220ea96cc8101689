// Package cleanup is the one-shot program that removes what Akri made in a cluster: Instances,
// brokers and their Services, in every namespace, and the finalizers that Akri left. It runs after
// `helm uninstall`. Configurations are the user's: they stay.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"

	"akri.sh/libs/kube"
	"akri.sh/libs/service"
)

// lookEvery is the time between two looks at what is left.
const lookEvery = 500 * time.Millisecond

// Config of the program.
type Config struct {
	kube.Flags
	Release        string        `help:"Helm release whose services are gone." required:"" placeholder:"NAME"`
	Namespace      string        `help:"Namespace of the release." default:"default" placeholder:"NAME"`
	WritersTimeout time.Duration `help:"How long to wait for the release's services that write to the API server to end." default:"60s"`
	Timeout        time.Duration `help:"How long all of it may take." default:"150s"`
}

// Service is the program.
type Service struct {
	config  Config
	log     *zap.Logger
	objects *objects
}

// New makes the clients. It talks to nobody yet.
func New(config Config, env service.Env) (*Service, error) {
	if config.Release == "" {
		return nil, errors.New("--release: want the name of the helm release")
	}
	if config.WritersTimeout <= 0 || config.Timeout <= config.WritersTimeout {
		return nil, fmt.Errorf("--timeout %v: want more than --writers-timeout %v, and that more than 0", config.Timeout, config.WritersTimeout)
	}
	access, err := config.RESTConfig(env.Log)
	if err != nil {
		return nil, err
	}
	objects, err := newObjects(access)
	if err != nil {
		return nil, err
	}
	return &Service{config: config, log: env.Log, objects: objects}, nil
}

// Run returns nil once nothing is left that Akri made, or when another Akri in the cluster still
// answers for it.
func (s *Service) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	others, err := s.objects.list(ctx, pod, othersOf(s.config.Release))
	if err != nil {
		return err
	}
	if len(others) > 0 {
		s.log.Info("leaving everything: another Akri runs in this cluster", zap.Stringers("pods", others))
		return nil
	}
	if err := s.awaitWriters(ctx); err != nil {
		return err
	}
	if err := s.tidyConfigurations(ctx); err != nil {
		return err
	}
	if err := s.objects.removeLease(ctx, s.config.Namespace); err != nil {
		return err
	}
	return s.removeAll(ctx)
}

// awaitWriters waits until nobody is left who would make again what is removed here. A pod on a
// dead node never ends, so that the wait does.
func (s *Service) awaitWriters(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, s.config.WritersTimeout)
	defer cancel()
	var last int
	err := wait.PollUntilContextCancel(waiting, lookEvery, true, func(ctx context.Context) (bool, error) {
		writers, err := s.objects.list(ctx, pod, writersOf(s.config.Release))
		if err != nil {
			s.log.Warn("cannot list Akri's services yet", zap.Error(err))
			return false, nil
		}
		if len(writers) != last && len(writers) > 0 {
			s.log.Info("waiting for Akri's services to end", zap.Stringers("pods", writers))
		}
		last = len(writers)
		return last == 0, nil
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("going on although services of Akri have not ended", zap.Int("pods", last), zap.Duration("waited", s.config.WritersTimeout))
		return nil
	}
	return err
}
