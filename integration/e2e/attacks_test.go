package e2e_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	instancev1 "akri.sh/proto/akri/instance/v1"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/attacks"
	"akri.sh/integration/mesh"
)

// TestAttacks attacks the webhook from a Pod and instance-writer with the identities of one node,
// while clients make ten honest changes a second on the other node. All of these succeed, no
// service restarts, and nothing of the other node leaks. AKRI_E2E_ATTACK is the duration (15s). It
// prints latencies.
func TestAttacks(t *testing.T) {
	selectForm(separate().resources())
	require.NoError(t, akri.Install(t.Context(), "instance-writer.replicas=2"))
	inOrder(t, attacked)
	_, err := akri.Uninstall(t.Context())
	require.NoError(t, err)
}

const (
	// marker is a property of a device on the honest node.
	marker         = "secret-of-the-honest-node"
	honestInterval = 100 * time.Millisecond
)

func attacked(t *testing.T) {
	duration := 15 * time.Second
	if text := os.Getenv("AKRI_E2E_ATTACK"); text != "" {
		var err error
		duration, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	honestNode, hostileNode := akri.Cluster.Nodes()[0], akri.Cluster.Nodes()[1]
	apply(t, configurationOf("e2e-honest", "e2eHonest", ""))
	handleAs(t, honestNode, &discoveryv0.RegisterDiscoveryHandlerRequest{Name: "e2eHonest", Endpoint: "e2eHonest"},
		&discoveryv0.Device{Id: "x", Properties: map[string]string{"X": marker}})
	instance := instanceName("e2e-honest", "x", honestNode.Name(), false)
	awaitInstances(t, "default", "e2e-honest", instance)
	apply(t, echoConfiguration("e2e-edited", 1, "", "foo0"))
	apply(t, echoConfiguration("e2e-target", 1, "", "foo1"))

	_, honest := callersOn(t, honestNode.Name())
	client := instancev1.NewInstanceServiceClient(honest.connect(t, writerAddress(t)))
	before := restartCounts(t)
	webhook, node := attackers(t, hostileNode.Name(), instance)

	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() { webhook.Run(ctx) })
	group.Go(func() { node.Run(ctx) })
	claims := []*instancev1.SlotClaim{{Namespace: "default", Instance: instance}}
	var edits, reservations latencies
	ticker := time.NewTicker(honestInterval)
	defer ticker.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		group.Go(func() {
			if i%2 == 0 {
				edits.measure(t, func(ctx context.Context) error {
					patch := fmt.Appendf(nil, `{"spec":{"capacity":%d}}`, i%5+1)
					_, err := akri.Configurations.In("default").Patch(ctx, "e2e-edited", types.MergePatchType, patch, metav1.PatchOptions{})
					return err
				})
				return
			}
			reservations.measure(t, func(ctx context.Context) error {
				if _, err := client.ReserveSlots(ctx, &instancev1.ReserveSlotsRequest{Node: honestNode.Name(), Claims: claims}); err != nil {
					return err
				}
				_, err := client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: honestNode.Name(), Claims: claims})
				return err
			})
		})
		<-ticker.C
	}
	cancel()
	group.Wait()

	t.Logf("edits of a Configuration: %s", &edits)
	t.Logf("slots reserved and released: %s", &reservations)
	t.Logf("attacks on the webhook: %v", webhook.Counts.All())
	t.Logf("attacks on instance-writer: %v", node.Counts.All())
	require.Zero(t, node.Leaked.Load(), "responses with properties of the other node")
	require.Equal(t, before, restartCounts(t))
	for _, attack := range []string{"8 MiB of objects: 413", "a forged user: 200", "slow review: connection closed"} {
		require.Positive(t, webhook.Counts.All()[attack], attack)
	}
	require.Positive(t, node.Counts.All()["reservations: NotFound"])
	requireUsable(t, instance)
}

// attackers returns the attackers. The first has the network of a Pod, the other the identities of
// a node.
func attackers(t *testing.T, hostile, victim string) (*attacks.Webhook, *attacks.Node) {
	t.Helper()
	service, err := akri.Kubernetes.CoreV1().Services(mesh.Namespace).Get(t.Context(), "akri-webhook-configuration", metav1.GetOptions{})
	require.NoError(t, err)
	apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: e2e-attacker, namespace: default}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "cluster.invalid/pause:1", imagePullPolicy: IfNotPresent}]
`, hostile))
	pod := awaitReadyPod(t, "default", "e2e-attacker")
	node, err := akri.Cluster.Node(hostile)
	require.NoError(t, err)
	pid, err := node.ContainerPID(t.Context(), pod.Namespace, pod.Name, "main")
	require.NoError(t, err)
	webhook := &attacks.Webhook{
		Address: net.JoinHostPort(service.Spec.ClusterIP, "443"),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialFrom(ctx, pid, network, address)
		},
	}

	reporter, reserver := callersOn(t, hostile)
	uids := map[string]string{}
	for _, name := range []string{"e2e-honest", "e2e-edited", "e2e-target"} {
		configuration, err := akri.Configurations.In("default").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		uids[name] = string(configuration.UID)
	}
	return webhook, &attacks.Node{
		Name: hostile, Reporter: reporter.connect(t, writerAddress(t)), Reserver: reserver.connect(t, writerAddress(t)),
		Victims: []string{victim}, Configurations: uids, Marker: marker,
	}
}

// latencies are the durations of honest changes.
type latencies struct {
	mu        sync.Mutex
	durations []time.Duration
}

// measure requires that a change succeeds.
func (l *latencies) measure(t *testing.T, change func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	started := time.Now()
	assert.NoError(t, change(ctx))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.durations = append(l.durations, time.Since(started))
}

func (l *latencies) String() string {
	slices.Sort(l.durations)
	at := func(percent int) time.Duration {
		return l.durations[(len(l.durations)-1)*percent/100].Round(time.Millisecond)
	}
	return fmt.Sprintf("%d, p50 %s, p99 %s, max %s", len(l.durations), at(50), at(99), at(100))
}

// restartCounts returns the restarts of the containers of all services.
func restartCounts(t *testing.T) map[string]int32 {
	t.Helper()
	counts := map[string]int32{}
	for _, service := range services() {
		for _, pod := range servicePods(t, service) {
			for _, container := range pod.Status.ContainerStatuses {
				counts[pod.Name] += container.RestartCount
			}
		}
	}
	return counts
}

// requireUsable runs a Pod with the device of the honest node.
func requireUsable(t *testing.T, instance string) {
	t.Helper()
	apply(t, ownPod("e2e-honest", instance))
	awaitReadyPod(t, "default", "e2e-honest")
}
