package cleanup

import (
	"context"
	"errors"
	"fmt"

	"akri.sh/services/cleanup/internal/objects"
)

// endBrokers stops broker-controller, which would create the brokers again, deletes all brokers and
// waits until they have ended: the kubelet cannot end a Pod with a ResourceClaim without the
// driver. Brokers that have not ended at the timeout are no error, because helm stops the
// uninstallation after an error. A failed request is an error: the user can remove its cause while
// the driver runs.
func (s *Service) endBrokers(ctx context.Context) error {
	// An upgrade or a rollback creates the Deployment again.
	if err := s.client.DeleteBrokerController(ctx, s.config.Namespace, s.config.Release); err != nil {
		return err
	}
	if err := s.waitForWriters(ctx, "broker-controller"); err != nil {
		return err
	}
	deleted, left, err := s.deleteAll(ctx, objects.Brokers, func(objects.Object) bool { return true })
	if errors.Is(ctx.Err(), context.Canceled) { // not the end of the time
		return fmt.Errorf("stopped before all brokers had ended: %w", ctx.Err())
	}
	if err != nil {
		return err
	}
	result := "Removed the brokers (" + objects.Count(deleted, objects.Brokers) + ")"
	if len(left) > 0 {
		result += fmt.Sprintf(", but after %v these have not ended: %s. "+
			"They stay Terminating until their nodes run and Akri is installed again", s.config.Timeout, summary(left))
	}
	return s.print(result + ". Your own Pods with devices can only end while Akri is installed: " +
		"delete them before you uninstall it, or install it again.")
}
