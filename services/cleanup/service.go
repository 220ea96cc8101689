// Package cleanup deletes the objects that Akri created in a cluster: Instances, brokers and their
// Services in all namespaces, and the finalizers of upstream Akri. It runs once, after `helm
// uninstall`. Configurations stay, because users created them.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"akri.sh/libs/kube"
	"akri.sh/libs/service"
	"akri.sh/services/cleanup/internal/objects"
)

const (
	pollInterval = 500 * time.Millisecond
	// maxListed limits the objects that an error lists.
	maxListed = 10
)

// Config of the service.
type Config struct {
	kube.Flags
	Release        string        `help:"Name of the uninstalled Helm release." required:"" placeholder:"NAME"`
	Namespace      string        `help:"Namespace of the release." default:"default" placeholder:"NAME"`
	WritersTimeout time.Duration `help:"Maximum time to wait for the end of the release's instance-writer and broker-controller." default:"20s"`
	Timeout        time.Duration `help:"Maximum time of the whole cleanup." default:"150s"`

	// Output receives one line for the user of helm, who sees it after the uninstallation. By
	// default it is the standard output.
	Output io.Writer `kong:"-"`
}

// Service is the cleanup of one release.
type Service struct {
	config Config
	log    *zap.Logger
	client *objects.Client
}

// New validates the configuration and creates the clients. It sends no request.
func New(config Config, env service.Env) (*Service, error) {
	if config.Release == "" {
		return nil, errors.New("--release: must be the name of the Helm release")
	}
	if config.WritersTimeout <= 0 || config.Timeout <= config.WritersTimeout {
		return nil, fmt.Errorf("--timeout %v: must be more than --writers-timeout %v, which must be positive",
			config.Timeout, config.WritersTimeout)
	}
	restConfig, err := config.RESTConfig(env.Log)
	if err != nil {
		return nil, err
	}
	client, err := objects.NewClient(restConfig)
	if err != nil {
		return nil, err
	}
	if config.Output == nil {
		config.Output = os.Stdout
	}
	return &Service{config: config, log: env.Log, client: client}, nil
}

// Run returns nil when all objects are deleted, or if another installation of Akri uses them.
func (s *Service) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	if err := s.clean(ctx); err != nil {
		return errors.Join(err, s.print("Removing the objects of Akri failed: "+err.Error()))
	}
	return nil
}

func (s *Service) clean(ctx context.Context) error {
	others, err := s.client.Pods(ctx, otherInstallations(s.config.Release))
	if err != nil {
		return err
	}
	if len(others) > 0 {
		s.log.Info("nothing removed: another installation of Akri runs in this cluster", zap.Stringers("pods", others))
		return s.print("Nothing removed: another installation of Akri runs in this cluster (" + summary(others) + ").")
	}
	if err := s.waitForWriters(ctx); err != nil {
		return err
	}
	err = s.client.ResetConfigurations(ctx, func(configuration string) {
		s.log.Info("removed finalizers", zap.String("configuration", configuration))
	})
	if err != nil {
		return err
	}
	if err := s.client.DeleteLeases(ctx, s.config.Namespace); err != nil {
		return err
	}
	return s.deleteAll(ctx)
}

// writers selects the Pods of a release that write to the API server.
func writers(release string) string {
	return "app.kubernetes.io/part-of=akri,app.kubernetes.io/instance=" + release +
		",app.kubernetes.io/component in (instance-writer,broker-controller)"
}

// otherInstallations selects the Pods of other releases that own Instances. The component agent is
// upstream Akri's.
func otherInstallations(release string) string {
	return "app.kubernetes.io/part-of=akri,app.kubernetes.io/instance!=" + release +
		",app.kubernetes.io/component in (instance-writer,agent)"
}

// waitForWriters waits until no service can create the deleted objects again. The wait is limited,
// because a Pod on a lost node does not end.
func (s *Service) waitForWriters(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, s.config.WritersTimeout)
	defer cancel()
	var last int
	err := wait.PollUntilContextCancel(limited, pollInterval, true, func(ctx context.Context) (bool, error) {
		pods, err := s.client.Pods(ctx, writers(s.config.Release))
		if err != nil {
			s.log.Warn("listing the release's Pods failed", zap.Error(err))
			return false, nil
		}
		if len(pods) != last && len(pods) > 0 {
			s.log.Info("waiting for the end of the release's Pods", zap.Stringers("pods", pods))
		}
		last = len(pods)
		return last == 0, nil
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("continuing although Pods of the release have not ended",
			zap.Int("pods", last), zap.Duration("waited", s.config.WritersTimeout))
		return nil
	}
	return err
}

// print writes a line for the user of helm.
func (s *Service) print(line string) error {
	if _, err := fmt.Fprintln(s.config.Output, line); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

// deleteAll deletes objects until a list finds only Pods that are ending.
func (s *Service) deleteAll(ctx context.Context) error {
	var remaining []objects.Object
	var lastErr error
	deleted := map[types.UID]objects.Object{}
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		remaining, lastErr = s.deleteOnce(ctx, deleted)
		return len(remaining) == 0 && lastErr == nil, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("remove Akri's objects: %w; remaining: %s", err, summary(remaining)), lastErr)
	}
	s.log.Info("all objects of Akri removed", zap.Int("removed", len(deleted)))
	return s.print("Removed the objects of Akri (" + objects.Count(slices.Collect(maps.Values(deleted))) + ").")
}

// deleteOnce deletes the objects that exist, and returns those that do not end by themselves. It
// logs and adds to deleted those that are new.
func (s *Service) deleteOnce(ctx context.Context, deleted map[types.UID]objects.Object) (remaining []objects.Object, err error) {
	var errs []error
	for _, kind := range objects.Kinds {
		found, err := s.client.List(ctx, kind)
		errs = append(errs, err)
		for _, object := range found {
			if !object.Ending() {
				remaining = append(remaining, object)
			}
			if err := s.client.Delete(ctx, object); err != nil {
				errs = append(errs, err)
				continue
			}
			if _, known := deleted[object.UID()]; !known {
				deleted[object.UID()] = object
				s.log.Info("removed", zap.Stringer("object", object))
			}
		}
	}
	return remaining, errors.Join(errs...)
}

func summary(remaining []objects.Object) string {
	names := make([]string, 0, maxListed)
	for _, object := range remaining[:min(maxListed, len(remaining))] {
		names = append(names, object.String())
	}
	if more := len(remaining) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
