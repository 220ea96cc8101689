package brokercontroller_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/libs/inspect/explain"
)

// Objects of the chart that were deleted are broken services in the metrics, which an alert reads,
// and work again when they are there.
func TestDeletedObjectsAreCounted(t *testing.T) {
	e := newTestEnv(t)
	labels := map[string]string{explain.PartOfLabel: explain.PartOf, explain.ComponentLabel: explain.InstanceWriter}
	from := corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "akri-ca"}}
	writer := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "akri-instance-writer", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "instance-writer", Image: "instance-writer:v1"}},
				Volumes:    []corev1.Volume{{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: &from}}},
			}},
		},
	}
	_, err := e.clientset.AppsV1().Deployments(e.namespace).Create(t.Context(), writer, metav1.CreateOptions{})
	require.NoError(t, err)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: writer.Name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
	_, err = e.Services.In(e.namespace).Create(t.Context(), service, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Services.In(e.namespace).Delete(context.Background(), service.Name, metav1.DeleteOptions{}))
	})

	e.start()
	e.brokenServices(2) // the ConfigMap does not exist, and the Deployment is scaled to 0
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "akri-ca"}}
	_, err = e.clientset.CoreV1().ConfigMaps(e.namespace).Create(t.Context(), ca, metav1.CreateOptions{})
	require.NoError(t, err)
	e.brokenServices(1)
}

// brokenServices waits for a number of broken services. The service looks for missing objects at an
// interval.
func (e *testEnv) brokenServices(expected int) {
	e.Helper()
	require.Eventually(e, func() bool {
		families, err := e.metrics.Gather()
		require.NoError(e, err)
		for _, family := range families {
			if family.GetName() != "akri_verdicts" {
				continue
			}
			for _, metric := range family.GetMetric() {
				if labels := metric.GetLabel(); labels[0].GetValue() == string(explain.Broken) && labels[1].GetValue() == "service" {
					return metric.GetGauge().GetValue() == float64(expected)
				}
			}
		}
		return false
	}, 2*timeout, pollInterval, "%d broken services", expected)
}
