package server_test

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/instance-writer/internal/editor"
	"akri.sh/services/instance-writer/internal/server"
)

// store has Instances by name; the one that is called stubborn nobody may write.
type store map[string]*akriv0.Instance

const stubborn = "a-8120fe"

func (s store) Cached(key types.NamespacedName) *akriv0.Instance { return s[key.Name].DeepCopy() }

func (s store) Get(_ context.Context, key types.NamespacedName) (*akriv0.Instance, error) {
	return s[key.Name].DeepCopy(), nil
}

func (s store) Create(context.Context, *akriv0.Instance) (*akriv0.Instance, error) {
	panic("unexpected")
}

func (s store) Delete(context.Context, *akriv0.Instance) error { panic("unexpected") }

func (s store) Update(_ context.Context, instance *akriv0.Instance) (*akriv0.Instance, error) {
	if instance.Name == stubborn {
		return nil, apierrors.NewForbidden(akriv0.InstanceResource.GroupResource(), instance.Name, nil)
	}
	s[instance.Name] = instance
	return instance, nil
}

func TestAnInstanceThatCannotBeWrittenKeepsNoSlotOfOthers(t *testing.T) {
	const other = "b-a19705"
	instances := store{}
	request := &instancev1.ReleaseSlotsRequest{Node: "n"}
	for _, name := range []string{stubborn, other} {
		instances[name] = &akriv0.Instance{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: "1"},
			Spec:       akriv0.InstanceSpec{Capacity: 1, Nodes: []string{"n"}, DeviceUsage: map[string]string{name + "-0": "n"}},
		}
		request.Claims = append(request.Claims, &instancev1.SlotClaim{Namespace: "default", Instance: name})
	}
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "s"})
	s := server.New(server.Config{
		Reservations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "r"}, []string{"result"}), Log: zap.NewNop(),
		Editor: editor.New(instances, editor.Metrics{Seconds: seconds, Batch: seconds, Conflicts: prometheus.NewCounter(prometheus.CounterOpts{Name: "c"})}),
	})
	_, err := s.ReleaseSlots(t.Context(), request)
	require.Equal(t, codes.Unavailable, status.Code(err), "the caller is to try again: %v", err)
	require.Equal(t, "n", instances[stubborn].Spec.DeviceUsage[stubborn+"-0"])
	require.Empty(t, instances[other].Spec.DeviceUsage[other+"-0"])
}
