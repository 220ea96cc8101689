package kube

import (
	"context"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"akri.sh/libs/broadcast"
)

// MaxWait is the longest pause of a Loop. Timers do not follow changes of the wall clock.
const MaxWait = time.Hour

// Factor, jitter and maximum number of steps of the pauses after failures.
const (
	retryFactor = 2
	retryJitter = 0.2
	retrySteps  = 10
)

// Loop reconciles objects that rarely change, all of them each time.
type Loop struct {
	// Objects run elsewhere. Changed is set when one of them changes.
	Objects Informers
	Changed broadcast.Signal
	// Reconcile compares and writes. It returns when to continue if nothing changes.
	Reconcile func(ctx context.Context) (after time.Duration, err error)
	// Timeout of Reconcile.
	Timeout time.Duration
	// FirstRetry and MaxRetry are the first and the longest pause after a failure.
	FirstRetry, MaxRetry time.Duration
	// Log is a method of a Logger, which logs the message Failed after a failure.
	Log    func(message string, fields ...zap.Field)
	Failed string
}

// Run waits until the objects have synced and reconciles until ctx ends. A conflict is no failure:
// it means that the object has changed, and that the cache will have the change.
func (l Loop) Run(ctx context.Context) {
	if WaitForSync(ctx, l.Objects) != nil {
		return // ctx ended
	}
	initial := wait.Backoff{
		Duration: l.FirstRetry, Factor: retryFactor, Jitter: retryJitter, Steps: retrySteps, Cap: l.MaxRetry,
	}
	backoff := initial
	for {
		after, err := l.reconcile(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case apierrors.IsConflict(err):
			after = MaxWait
		case err != nil:
			after = backoff.Step()
			l.Log(l.Failed, zap.Error(err), zap.Duration("retry_in", after))
		default:
			backoff = initial
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(min(after, MaxWait)):
		case <-l.Changed:
		}
	}
}

func (l Loop) reconcile(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	return l.Reconcile(ctx)
}
