// Package cleanup deletes the objects that Akri created in a cluster: Instances, brokers and their
// Services in all namespaces, and the finalizers of upstream Akri. It runs once, after `helm
// uninstall`. Configurations stay, because users created them. With Dynamic Resource Allocation it
// also runs before, to end the brokers while the driver runs.
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
	Release         string        `help:"Name of the Helm release." required:"" placeholder:"NAME"`
	Namespace       string        `help:"Namespace of the release." default:"default" placeholder:"NAME"`
	BeforeUninstall bool          `help:"Only stop broker-controller and end the brokers, before the release is uninstalled."`
	WritersTimeout  time.Duration `help:"Maximum time to wait for the end of the release's instance-writer and broker-controller." default:"20s"`
	Timeout         time.Duration `help:"Maximum time of the whole cleanup." default:"150s"`

	// Output receives one line for the user of helm. By default it is the standard output.
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
// Before the uninstallation it also returns nil if brokers have not ended in time.
func (s *Service) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	err := s.clean(ctx)
	if err == nil {
		return nil
	}
	what := "objects of Akri"
	if s.config.BeforeUninstall {
		what = "brokers"
	}
	return errors.Join(err, s.print("Removing the "+what+" failed: "+err.Error()))
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
	if s.config.BeforeUninstall {
		return s.endBrokers(ctx)
	}
	if err := s.waitForWriters(ctx, "instance-writer,broker-controller"); err != nil {
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
	deleted, left, err := s.deleteAll(ctx, objects.Kinds, func(o objects.Object) bool { return !o.Ending() })
	if err != nil || len(left) > 0 {
		return errors.Join(fmt.Errorf("remove Akri's objects: %w; remaining: %s", ctx.Err(), summary(left)), err)
	}
	s.log.Info("all objects of Akri removed", zap.Int("removed", len(deleted)))
	return s.print("Removed the objects of Akri (" + objects.Count(deleted, objects.Kinds) + ").")
}

// otherInstallations selects the Pods of other releases that own Instances. The component agent is
// upstream Akri's.
func otherInstallations(release string) string {
	return "app.kubernetes.io/part-of=akri,app.kubernetes.io/instance!=" + release +
		",app.kubernetes.io/component in (instance-writer,agent)"
}

// waitForWriters waits until the components, which could create the deleted objects again, have
// ended. The wait is limited, because a Pod on a lost node does not end.
func (s *Service) waitForWriters(ctx context.Context, components string) error {
	selector := "app.kubernetes.io/part-of=akri,app.kubernetes.io/instance=" + s.config.Release +
		",app.kubernetes.io/component in (" + components + ")"
	limited, cancel := context.WithTimeout(ctx, s.config.WritersTimeout)
	defer cancel()
	var last int
	err := wait.PollUntilContextCancel(limited, pollInterval, true, func(ctx context.Context) (bool, error) {
		pods, err := s.client.Pods(ctx, selector)
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

// deleteAll deletes the objects of the kinds until a list finds none that is awaited. It returns
// the deleted ones. If ctx ends before, it also returns those that are left, and the error of the
// last attempt that was complete.
func (s *Service) deleteAll(ctx context.Context, kinds []objects.Kind, awaited func(objects.Object) bool) (deleted, left []objects.Object, err error) {
	known := map[types.UID]objects.Object{}
	err = errors.New("no attempt was complete")
	_ = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		found, failed := s.deleteOnce(ctx, kinds, known)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		left, err = slices.DeleteFunc(found, func(o objects.Object) bool { return !awaited(o) }), failed
		return len(left) == 0 && err == nil, nil
	})
	return slices.Collect(maps.Values(known)), left, err
}

// deleteOnce deletes the objects that exist and returns them. It logs and adds to deleted those
// that are new.
func (s *Service) deleteOnce(ctx context.Context, kinds []objects.Kind, deleted map[types.UID]objects.Object) (found []objects.Object, err error) {
	var errs []error
	for _, kind := range kinds {
		list, err := s.client.List(ctx, kind)
		errs = append(errs, err)
		found = append(found, list...)
		for _, object := range list {
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
	return found, errors.Join(errs...)
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
