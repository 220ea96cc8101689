package election_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/libs/kube/kubetest"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/election"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const within = 10 * time.Second

// candidate takes part in one election until it is stopped or cut off from the API server.
type candidate struct {
	election.Leases
	cut    atomic.Bool
	leads  chan struct{}
	result chan error
	stop   context.CancelFunc
}

var errCut = errors.New("cut off")

func (c *candidate) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if c.cut.Load() {
		return nil, errCut
	}
	return c.Leases.Update(ctx, lease, options)
}

func run(t *testing.T, lease, identity string, leading *atomic.Int32) *candidate {
	t.Helper()
	clients, err := cluster.NewClients(server.Config())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	c := &candidate{Leases: clients.Leases.In("default"), leads: make(chan struct{}), result: make(chan error, 1), stop: stop}
	elector := election.Elector{
		Leases: c, Name: lease, Identity: identity, Log: zap.NewNop(),
		Duration: time.Second, Deadline: 600 * time.Millisecond, Retry: 50 * time.Millisecond,
	}
	go func() {
		c.result <- elector.Run(ctx, func(ctx context.Context) error {
			defer leading.Add(-1)
			if leading.Add(1) != 1 {
				return errors.New("two lead at once")
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
	case <-time.After(within):
		require.FailNow(t, "nothing within "+within.String())
		panic("unreachable")
	}
}

func TestTheNextLeadsAtOnceWhenTheLeaderStops(t *testing.T) {
	var leading atomic.Int32
	first := run(t, "stop", "first", &leading)
	receive(t, first.leads)
	second := run(t, "stop", "second", &leading)
	first.stop()
	require.NoError(t, receive(t, first.result))
	receive(t, second.leads)
	second.stop()
	require.NoError(t, receive(t, second.result))
}

func TestALeaderThatIsCutOffStopsBeforeTheNextLeads(t *testing.T) {
	var leading atomic.Int32
	first := run(t, "cut", "first", &leading)
	receive(t, first.leads)
	second := run(t, "cut", "second", &leading)
	first.cut.Store(true)
	err := receive(t, first.result)
	require.ErrorIs(t, err, election.ErrLost)
	require.ErrorIs(t, err, errCut)
	receive(t, second.leads)
	second.stop()
	require.NoError(t, receive(t, second.result))
}

func TestWhoComesBackAsTheSameLeadsOnAtOnce(t *testing.T) {
	var leading atomic.Int32
	first := run(t, "same", "first", &leading)
	receive(t, first.leads)
	first.cut.Store(true) // it cannot give the Lease back, as one that is killed
	first.stop()
	receive(t, first.result)
	clients, err := cluster.NewClients(server.Config())
	require.NoError(t, err)
	leases := clients.Leases.In("default")
	held, err := leases.Get(t.Context(), "same", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "first", *held.Spec.HolderIdentity)
	held.Spec.LeaseDurationSeconds = new(int32(3600)) // nobody else would lead before that
	_, err = leases.Update(t.Context(), held, metav1.UpdateOptions{})
	require.NoError(t, err)

	again := run(t, "same", "first", &leading)
	receive(t, again.leads)
	again.stop()
	require.NoError(t, receive(t, again.result))
}

func TestWhoNeverLedStopsWithoutAnError(t *testing.T) {
	var leading atomic.Int32
	first := run(t, "never", "first", &leading)
	receive(t, first.leads)
	second := run(t, "never", "second", &leading)
	second.stop()
	require.NoError(t, receive(t, second.result))
	first.stop()
	require.NoError(t, receive(t, first.result))
}
