package server_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/batch"
	"akri.sh/services/instance-writer/internal/server"
)

// store holds Instances by name. update is called before each update.
type store struct {
	instances map[string]*akriv0.Instance
	update    func(*akriv0.Instance) error
}

func (s store) Cached(key types.NamespacedName) *akriv0.Instance {
	return s.instances[key.Name].DeepCopy()
}

func (s store) Get(_ context.Context, key types.NamespacedName) (*akriv0.Instance, error) {
	return s.Cached(key), nil
}

func (s store) Create(context.Context, *akriv0.Instance) (*akriv0.Instance, error) {
	panic("unexpected")
}

func (s store) Delete(_ context.Context, instance *akriv0.Instance) error {
	delete(s.instances, instance.Name)
	return nil
}

func (s store) Update(_ context.Context, instance *akriv0.Instance) (*akriv0.Instance, error) {
	if err := s.update(instance); err != nil {
		return nil, err
	}
	s.instances[instance.Name] = instance
	return instance, nil
}

func instance(name string, usage map[string]string) *akriv0.Instance {
	return &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: "1"},
		Spec:       akriv0.InstanceSpec{Capacity: 3, Nodes: []string{"n"}, DeviceUsage: usage},
	}
}

func claim(name string, index uint32) *instancev1.SlotClaim {
	return &instancev1.SlotClaim{Namespace: "default", Instance: name, Index: index}
}

// An Instance that cannot be written does not prevent the release of other Instances' slots.
func TestReleaseDespiteForbiddenInstance(t *testing.T) {
	const forbidden, writable = "a-8120fe", "b-a19705"
	s := store{
		instances: map[string]*akriv0.Instance{},
		update: func(instance *akriv0.Instance) error {
			if instance.Name == forbidden {
				return apierrors.NewForbidden(akriv0.InstanceResource.GroupResource(), instance.Name, nil)
			}
			return nil
		},
	}
	request := &instancev1.ReleaseSlotsRequest{Node: "n"}
	for _, name := range []string{forbidden, writable} {
		s.instances[name] = instance(name, map[string]string{name + "-0": "n"})
		request.Claims = append(request.Claims, claim(name, 0))
	}
	_, err := newServer(s, nil).ReleaseSlots(t.Context(), request)
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	require.Equal(t, "n", s.instances[forbidden].Spec.DeviceUsage[forbidden+"-0"])
	require.Empty(t, s.instances[writable].Spec.DeviceUsage[writable+"-0"])
}

// expiringContext ends right after another goroutine has checked that it has not ended.
type expiringContext struct {
	context.Context
	cancel context.CancelFunc
}

func (c expiringContext) Err() error {
	err := c.Context.Err()
	c.cancel()
	return err
}

// newGatedServer returns a server with the Instance. Each update sends to updating, and then waits
// for gate.
func newGatedServer(name string) (s *server.Server, updating <-chan struct{}, gate chan struct{}) {
	started, gate := make(chan struct{}), make(chan struct{})
	return newServer(store{
		instances: map[string]*akriv0.Instance{name: instance(name, nil)},
		update:    func(*akriv0.Instance) error { started <- struct{}{}; <-gate; return nil },
	}, nil), started, gate
}

// A reservation is abandoned while the goroutine of another call applies it. The race detector must
// not see a variable of the abandoned call.
func TestReserveAbandonedDuringWrite(t *testing.T) {
	const name = "cam-8120fe"
	synctest.Test(t, func(t *testing.T) {
		s, updating, gate := newGatedServer(name)
		reserve := func(ctx context.Context, index uint32) <-chan error {
			ended := make(chan error, 1)
			go func() {
				_, err := s.ReserveSlots(ctx, &instancev1.ReserveSlotsRequest{Node: "n", Claims: []*instancev1.SlotClaim{claim(name, index)}})
				ended <- err
			}()
			synctest.Wait()
			return ended
		}
		first := reserve(t.Context(), 0) // writes
		<-updating
		second := reserve(t.Context(), 1) // waits for the first write
		ctx, cancel := context.WithCancel(t.Context())
		abandoned := reserve(expiringContext{ctx, cancel}, 2)
		gate <- struct{}{}
		<-updating // the second call has applied the abandoned reservation
		require.Equal(t, codes.Unavailable, status.Code(<-abandoned))
		close(gate)
		require.NoError(t, <-first)
		require.NoError(t, <-second)
	})
}

// An Instance is deleted in the write that also reserves or releases its slots.
func TestDeletedInTheSameWrite(t *testing.T) {
	const name = "cam-8120fe"
	claims := []*instancev1.SlotClaim{claim(name, 1)}
	for call, expect := range map[string]struct {
		send func(context.Context, *server.Server) error
		code codes.Code
	}{
		"reserve": {func(ctx context.Context, s *server.Server) error {
			_, err := s.ReserveSlots(ctx, &instancev1.ReserveSlotsRequest{Node: "n", Claims: claims})
			return err
		}, codes.NotFound},
		"release": {func(ctx context.Context, s *server.Server) error {
			_, err := s.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: "n", Claims: claims})
			return err
		}, codes.OK},
	} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, updating, gate := newGatedServer(name)
				start := func(call func() error) <-chan error {
					ended := make(chan error, 1)
					go func() { ended <- call() }()
					synctest.Wait()
					return ended
				}
				first := start(func() error { // writes
					_, err := s.ReserveSlots(t.Context(), &instancev1.ReserveSlotsRequest{Node: "n", Claims: []*instancev1.SlotClaim{claim(name, 0)}})
					return err
				})
				<-updating
				second := start(func() error { return expect.send(t.Context(), s) })
				deleted := start(func() error {
					_, err := s.Writer.Edit(t.Context(), types.NamespacedName{Namespace: "default", Name: name}, batch.Edit{
						Apply: func(*akriv0.Instance) (*akriv0.Instance, error) { return nil, nil },
					})
					return err
				})
				close(gate)
				require.NoError(t, <-first)
				require.Equal(t, expect.code, status.Code(<-second))
				require.NoError(t, <-deleted)
			})
		})
	}
}
