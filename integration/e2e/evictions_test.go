package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

// defaultEvictions is how often a Pod is evicted unless AKRI_E2E_EVICTIONS is set.
const defaultEvictions = 4

// maxClosed limits the time for which a node's stream is closed when the replica that served it
// ends. The stream is open again at once if another replica is tried, and after gRPC's backoff
// otherwise. A busy machine can take seconds to start a process. The test logs the time.
const maxClosed = 10 * time.Second

// evictedPods evicts the Pods of the cluster services in turn, and replaces the webhook's
// certificate and CA. The webhook decides about each Configuration meanwhile, and the streams of a
// node are open again soon.
func evictedPods(t *testing.T) {
	evictions := repetitions(t, "AKRI_E2E_EVICTIONS", defaultEvictions)
	require.NoError(t, akri.Install(t.Context(), "broker-controller.replicas=2"))
	_, reserver := callersOn(t, "node-b")
	longest := keepStream(t, reserver.connect(t, writerAddress(t)), "node-b")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	decisions := make(chan int)
	go func() { decisions <- decide(ctx, t) }()
	began := time.Now()
	for i := range evictions {
		renewCertificate(t, i%2 == 0)
		evict(t, "broker-controller")
		evict(t, "instance-writer")
	}
	awaitServiceReady(t, "broker-controller")
	stop()
	decided := <-decisions
	require.Greater(t, decided, 10*evictions)
	require.Less(t, longest(), maxClosed, "a stream was closed")
	t.Logf("%d decisions during %d evictions in %s; a stream was closed for %s at most",
		decided, evictions, time.Since(began).Round(time.Second), longest())
}

// decide creates valid and invalid Configurations in dry runs until ctx ends or a decision is
// wrong. It returns their number.
func decide(ctx context.Context, t *testing.T) (decided int) {
	t.Helper()
	create := func(name string) error {
		configuration := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		configuration.Spec.DiscoveryHandler.Name = "debugEcho"
		dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		_, err := akri.Configurations.In("default").Create(t.Context(), configuration, dryRun)
		return err
	}
	for right := true; right && ctx.Err() == nil; decided += 2 {
		right = assert.NoError(t, create("e2e-valid"), "decision %d at %s", decided, time.Now()) &&
			assert.ErrorContains(t, create(strings.Repeat("e", 60)), "metadata.name: Too long", "decision %d at %s", decided+1, time.Now())
	}
	return decided
}

// renewCertificate makes the replicas of the webhook issue a certificate, or also a CA.
func renewCertificate(t *testing.T, ca bool) {
	t.Helper()
	key := corev1.TLSCertKey
	if ca {
		key = "ca.key"
	}
	secrets := akri.Kubernetes.CoreV1().Secrets(mesh.Namespace)
	const name = "akri-webhook-configuration"
	_, err := secrets.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{%q:null}}`, key), metav1.PatchOptions{})
	require.NoError(t, err)
	awaitObject(t, "a new certificate", secrets, name, func(secret *corev1.Secret) error {
		if len(secret.Data[key]) == 0 {
			return errors.New("the Secret has no " + key)
		}
		return nil
	})
}

// evict evicts the oldest Pod of a service as soon as its PodDisruptionBudget allows it.
func evict(t *testing.T, service string) {
	t.Helper()
	var oldest *corev1.Pod
	for _, pod := range servicePods(t, service) {
		if pod.DeletionTimestamp == nil && (oldest == nil || pod.CreationTimestamp.Before(&oldest.CreationTimestamp)) {
			oldest = &pod
		}
	}
	require.NotNil(t, oldest, "Pods of %s", service)
	await(t, "the eviction of "+oldest.Name, func(ctx context.Context) error {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: mesh.Namespace, Name: oldest.Name}}
		return akri.Kubernetes.PolicyV1().Evictions(mesh.Namespace).Evict(ctx, eviction)
	})
}
