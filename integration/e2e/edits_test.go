package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"akri.sh/integration/mesh"
	akriv0 "akri.sh/libs/apis/akri/v0"
)

// editedBrokers makes all kinds of edits to a Configuration with four brokers.
func editedBrokers(t *testing.T) {
	configuration := func(broker string) string {
		return echoConfiguration("e2e-edit", 2, broker, "foo0", "foo1") + servicesSpec
	}
	apply(t, configuration(broker))
	before := podUIDs(awaitBrokers(t, "default", "e2e-edit", 4))

	// An equivalent spec in another notation.
	same := strings.NewReplacer(`limits: {"{{PLACEHOLDER}}": "1"}`, `limits: {"{{PLACEHOLDER}}": 1000m}`, "- name: broker", "- name:   broker").Replace(broker)
	require.NotEqual(t, broker, same)
	require.NoError(t, akri.ApplyText(t.Context(), configuration(same)+"  brokerProperties: {ADDED: later}\n"))
	awaitProperty(t, "e2e-edit", "ADDED", "later")
	require.Equal(t, before, podUIDs(awaitBrokers(t, "default", "e2e-edit", 4)))

	fewest := fewestRunning(t, "e2e-edit")
	edited := strings.Replace(broker, "- name: broker", "- name: broker\n        env: [{name: EDITED, value: edited}]", 1)
	require.NoError(t, akri.ApplyText(t.Context(), configuration(edited)))
	pods := akri.Kubernetes.CoreV1().Pods("default")
	awaitObjects(t, "all brokers to have the edited spec", pods, ofConfiguration("e2e-edit"), func(brokers []corev1.Pod) error {
		for _, pod := range brokers {
			if !mesh.Ready(&pod) || len(pod.Spec.Containers[0].Env) == 0 {
				return fmt.Errorf("%s has the previous spec or is not ready", pod.Name)
			}
		}
		if len(brokers) != 4 {
			return fmt.Errorf("%d brokers exist", len(brokers))
		}
		return nil
	})
	require.Equal(t, 3, fewest(), "at least three brokers must run at any time")

	// The Job's Pod is created after the previous broker has released the device. backoffLimit 0
	// allows no rejected Pod.
	require.NoError(t, akri.ApplyText(t.Context(), configuration(strings.Replace(jobBroker, "backoffLimit: 5", "backoffLimit: 0", 1))))
	awaitJobs(t, "e2e-edit", 2)
	for _, pod := range awaitBrokers(t, "default", "e2e-edit", 2) {
		require.Equal(t, "Job", metav1.GetControllerOf(&pod).Kind)
	}
	require.NoError(t, akri.ApplyText(t.Context(), configuration("")))
	awaitJobs(t, "e2e-edit", 0)
	awaitBrokers(t, "default", "e2e-edit", 0)
	awaitService(t, "default", "e2e-edit-svc", false)
	require.NoError(t, akri.ApplyText(t.Context(), configuration(broker)))
	awaitBrokers(t, "default", "e2e-edit", 4)
	awaitService(t, "default", "e2e-edit-svc", true)
}

// fewestRunning counts the running brokers of the Configuration, without terminating ones, and
// returns a function that ends the count and returns the minimum.
func fewestRunning(t *testing.T, configuration string) func() int {
	t.Helper()
	brokers := ofConfiguration(configuration)
	list, err := akri.Kubernetes.CoreV1().Pods("default").List(t.Context(), brokers)
	require.NoError(t, err)
	brokers.ResourceVersion = list.ResourceVersion
	pods, err := akri.Kubernetes.CoreV1().Pods("default").Watch(t.Context(), brokers)
	require.NoError(t, err)
	running := map[string]bool{}
	for _, pod := range list.Items {
		running[pod.Name] = true
	}
	fewest := len(running)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range pods.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				delete(running, pod.Name)
				if event.Type != watch.Deleted && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
					running[pod.Name] = true
				}
				fewest = min(fewest, len(running))
			}
		}
	}()
	return func() int {
		pods.Stop()
		<-done
		return fewest
	}
}

func awaitProperty(t *testing.T, configuration, key, value string) {
	t.Helper()
	awaitInstancesOf(t, "default", configuration, key, func(found []akriv0.Instance) error {
		for _, instance := range found {
			if instance.Spec.BrokerProperties[key] != value {
				return fmt.Errorf("%s has %v", instance.Name, instance.Spec.BrokerProperties)
			}
		}
		return nil
	})
}

func awaitJobs(t *testing.T, configuration string, count int) {
	t.Helper()
	what := fmt.Sprintf("%d Jobs of %s", count, configuration)
	awaitObjects(t, what, akri.Kubernetes.BatchV1().Jobs("default"), ofConfiguration(configuration), func(jobs []batchv1.Job) error {
		if len(jobs) != count {
			return fmt.Errorf("%d Jobs exist", len(jobs))
		}
		return nil
	})
}
