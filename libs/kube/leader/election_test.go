package leader_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/kube/leader"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const timeout = time.Minute

// candidate takes part in one election until it is stopped. It is an http.RoundTripper that can
// fail all requests.
type candidate struct {
	next         http.RoundTripper
	disconnected atomic.Bool
	leads        chan struct{}
	result       chan error
	stop         context.CancelFunc
}

func (c *candidate) RoundTrip(request *http.Request) (*http.Response, error) {
	if c.disconnected.Load() {
		return nil, errors.New("disconnected")
	}
	return c.next.RoundTrip(request)
}

// run starts a candidate. leaders counts the processes that lead.
func run(t *testing.T, lease, identity string, leaseDuration time.Duration, leaders *atomic.Int32) *candidate {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &candidate{leads: make(chan struct{}), result: make(chan error, 1), stop: stop}
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		c.next = next
		return c
	})
	election := leader.Election{
		REST: config, Namespace: "default", Name: lease, Identity: identity, Log: zap.NewNop(),
		LeaseDuration: leaseDuration, RenewDeadline: 700 * time.Millisecond,
		RetryPeriod: 400 * time.Millisecond, // also the time limit of the release, on a busy machine
	}
	go func() {
		c.result <- election.Run(ctx, func(ctx context.Context) error {
			defer leaders.Add(-1)
			if leaders.Add(1) != 1 {
				return errors.New("two processes lead")
			}
			close(c.leads)
			<-ctx.Done()
			return nil
		})
	}()
	return c
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(timeout):
		require.FailNow(t, "nothing received within "+timeout.String())
		panic("unreachable")
	}
}

func TestStoppedLeaderReleasesTheLease(t *testing.T) {
	var leaders atomic.Int32
	first := run(t, "stop", "first", time.Hour, &leaders)
	receive(t, first.leads)
	second := run(t, "stop", "second", time.Hour, &leaders)
	first.stop()
	require.NoError(t, receive(t, first.result))
	receive(t, second.leads)
	second.stop()
	require.NoError(t, receive(t, second.result))
}

func TestDisconnectedLeaderStopsBeforeTheNext(t *testing.T) {
	var leaders atomic.Int32
	first := run(t, "disconnected", "first", 2*time.Second, &leaders)
	receive(t, first.leads)
	second := run(t, "disconnected", "second", 2*time.Second, &leaders)
	first.disconnected.Store(true)
	require.ErrorIs(t, receive(t, first.result), leader.ErrLeaseLost)
	receive(t, second.leads)
	second.stop()
	require.NoError(t, receive(t, second.result))
}

// A leader with such times can lead after the Lease has expired.
func TestTimesThatOverlapAreRefused(t *testing.T) {
	var leaders atomic.Int32
	candidate := run(t, "overlap", "first", 700*time.Millisecond+400*time.Millisecond, &leaders)
	require.ErrorContains(t, receive(t, candidate.result), "LeaseDuration 1.1s must exceed")
}

func TestRestartWithSameIdentityLeadsAtOnce(t *testing.T) {
	var leaders atomic.Int32
	first := run(t, "restart", "first", 2*time.Second, &leaders)
	receive(t, first.leads)
	first.disconnected.Store(true) // it cannot release the Lease, like a process that is killed
	first.stop()
	receive(t, first.result)
	client, err := kubernetes.NewForConfig(server.Config())
	require.NoError(t, err)
	leases := client.CoordinationV1().Leases("default")
	lease, err := leases.Get(t.Context(), "restart", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "first", *lease.Spec.HolderIdentity)
	lease.Spec.LeaseDurationSeconds = new(int32(3600)) // another identity would have to wait for an hour
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	require.NoError(t, err)

	restarted := run(t, "restart", "first", 2*time.Second, &leaders)
	receive(t, restarted.leads)
	restarted.stop()
	require.NoError(t, receive(t, restarted.result))
}

func TestCandidateStopsWithoutError(t *testing.T) {
	var leaders atomic.Int32
	first := run(t, "candidate", "first", time.Hour, &leaders)
	receive(t, first.leads)
	second := run(t, "candidate", "second", time.Hour, &leaders)
	second.stop()
	require.NoError(t, receive(t, second.result))
	first.stop()
	require.NoError(t, receive(t, first.result))
}
