package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/plan"
	"akri.sh/services/broker-controller/internal/render"
)

// newCache returns an empty cache that is not running.
func newCache(t *testing.T) cluster.Cache {
	t.Helper()
	clients, err := cluster.NewClients(&rest.Config{Host: "unused"})
	require.NoError(t, err)
	return cluster.NewCache(clients, "default")
}

func newInstance(uid types.UID) *akriv0.Instance {
	return &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "echo-8120fe", UID: uid}}
}

func controlledBy(instance *akriv0.Instance) metav1.OwnerReference {
	return *metav1.NewControllerRef(instance, akriv0.GroupVersion.WithKind("Instance"))
}

// An object can have further owners, in any order.
func TestPodOfAnEarlierInstance(t *testing.T) {
	instance := newInstance("new")
	other := metav1.OwnerReference{Kind: "Other", UID: "other"}
	for _, c := range []struct {
		owner   *akriv0.Instance
		foreign bool
	}{{instance, false}, {newInstance("old"), true}} {
		p := pod(corev1.PodStatus{})
		p.OwnerReferences = []metav1.OwnerReference{other, controlledBy(c.owner)}
		require.Equal(t, c.foreign, planPod(p, instance, plan.Times{}).Foreign)
	}
}

// A Job of an earlier Instance has not run for this one.
func TestJobOfAnEarlierInstance(t *testing.T) {
	c := &Controller{Options: Options{Cache: newCache(t)}}
	instance, spec := newInstance("new"), &batchv1.JobSpec{}
	configuration := &akriv0.Configuration{Spec: akriv0.ConfigurationSpec{BrokerSpec: &akriv0.BrokerSpec{BrokerJobSpec: spec}}}
	require.True(t, c.expectsJob(instance, configuration), "no Job exists")
	for _, owner := range []types.UID{"old", "new"} {
		require.NoError(t, c.Cache.Jobs.GetIndexer().Add(&batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "job-" + string(owner), Labels: map[string]string{render.LabelInstance: instance.Name},
				Annotations:     map[string]string{render.AnnotationSpecHash: render.Hash(spec)},
				OwnerReferences: []metav1.OwnerReference{controlledBy(newInstance(owner))},
			},
			Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}},
		}))
		require.Equal(t, owner == "old", c.expectsJob(instance, configuration))
	}
}
