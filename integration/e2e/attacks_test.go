package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	instancev1 "akri.sh/proto/akri/instance/v1"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/attacks"
	"akri.sh/integration/mesh"
)

// TestAttacks attacks the webhook from a Pod with a CPU limit, and instance-writer with the
// identities of one node, while clients make ten honest changes a second on the other node. All of
// these succeed, a new Configuration gets its broker, no service restarts, and nothing of the other
// node leaks. It prints latencies. AKRI_E2E_ATTACK is the duration (15s); if it is set, the changes
// are made for the same time before the attack, too.
func TestAttacks(t *testing.T) {
	selectForm(separate().resources())
	require.NoError(t, akri.Install(t.Context(), "instance-writer.replicas=2"))
	inOrder(t, attacked)
	_, err := akri.Uninstall(t.Context())
	require.NoError(t, err)
}

const (
	// marker is a property of a device on the honest node.
	marker = "secret-of-the-honest-node"
	// foreignNamespace has a Configuration with devices on the honest node.
	foreignNamespace = "e2e-foreign-namespace"
	honestInterval   = 200 * time.Millisecond
	// honestCalls is the number of calls that an honest client has in progress at most: kubelets
	// make few at once.
	honestCalls = 4
	// minChanges is the number of changes of a client that must succeed in each second on average.
	minChanges = 1
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
	apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+foreignNamespace+"}\n")
	apply(t, strings.Replace(configurationOf("e2e-foreign", "e2eHonest", ""), "namespace: default", "namespace: "+foreignNamespace, 1))
	foreign := instanceName("e2e-foreign", "x", honestNode.Name(), false)
	awaitInstances(t, foreignNamespace, "e2e-foreign", foreign)
	apply(t, echoConfiguration("e2e-edited", 1, "", "foo0"))
	apply(t, echoConfiguration("e2e-target", 1, "", "foo1"))

	_, honest := callersOn(t, honestNode.Name())
	client := instancev1.NewInstanceServiceClient(honest.connect(t, writerAddress(t)))
	before := restartCounts(t)
	if os.Getenv("AKRI_E2E_ATTACK") != "" {
		change(t, "without attack", duration, client, honestNode.Name(), instance)
	}
	stop := startAttack(t, hostileNode.Name(), "default/"+instance, foreignNamespace+"/"+foreign)
	change(t, "during the attack", duration, client, honestNode.Name(), instance)
	apply(t, echoConfiguration("e2e-attacked", 1, broker, "foo2"))
	awaitBrokers(t, "default", "e2e-attacked", 1)
	results := stop()

	t.Logf("attacks: %+v", results)
	require.Zero(t, results.Leaked, "responses with properties of the other node or with the name of the other namespace")
	require.Equal(t, before, restartCounts(t))
	for _, attack := range []string{
		"8 MiB of objects: 413", "40,000 containers: 200", "a large exponent: 200", "a forged user: 200", "slow review: connection closed", "slow review: connection refused",
	} {
		require.Positive(t, results.Webhook[attack], attack)
	}
	require.Positive(t, results.Node["reservations: NotFound"])
	requireUsable(t, instance)
}

// change makes ten honest changes a second on a node and prints latencies.
func change(t *testing.T, title string, duration time.Duration, client instancev1.InstanceServiceClient, node, instance string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	claims := []*instancev1.SlotClaim{{Namespace: "default", Instance: instance}}
	var edits, reservations changes
	var group sync.WaitGroup

	group.Go(func() {
		edits.run(ctx, t, func(ctx context.Context, i int) error {
			patch := fmt.Appendf(nil, `{"spec":{"capacity":%d}}`, i%5+1)
			_, err := akri.Configurations.In("default").Patch(ctx, "e2e-edited", types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	})
	group.Go(func() {
		reservations.run(ctx, t, func(ctx context.Context, _ int) error {
			if _, err := client.ReserveSlots(ctx, &instancev1.ReserveSlotsRequest{Node: node, Claims: claims}); err != nil {
				return err
			}
			_, err := client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: node, Claims: claims})
			return err
		})
	})
	group.Wait()
	minimum := int(duration/time.Second) * minChanges
	require.GreaterOrEqual(t, len(edits.durations), minimum, "edits")
	require.GreaterOrEqual(t, len(reservations.durations), minimum, "reservations")

	t.Logf("%s: edits of a Configuration: %s; slots reserved and released: %s", title, &edits, &reservations)
}

// startAttack starts a process that attacks the webhook, and instance-writer with the identities of
// a node. The process has the network and the CPU limit of a Pod on that node.
func startAttack(t *testing.T, hostile string, victims ...string) (stop func() attacks.Results) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "akri-attack")
	built, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "akri.sh/integration/cmd/akri-attack").CombinedOutput()
	require.NoError(t, err, "%s", built)
	service, err := akri.Kubernetes.CoreV1().Services(mesh.Namespace).Get(t.Context(), "akri-webhook-configuration", metav1.GetOptions{})
	require.NoError(t, err)
	apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: e2e-attacker, namespace: default}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers:
    - {name: main, image: "cluster.invalid/pause:1", imagePullPolicy: IfNotPresent, resources: {limits: {cpu: 500m}}}
`, hostile))
	pod := awaitReadyPod(t, "default", "e2e-attacker")
	node, err := akri.Cluster.Node(hostile)
	require.NoError(t, err)
	pid, err := node.ContainerPID(t.Context(), pod.Namespace, pod.Name, "main")
	require.NoError(t, err)

	reporter, reserver := callersOn(t, hostile)
	arguments := []string{
		"--net=" + networkOf(pid), program, "--node", hostile, "--victim", strings.Join(victims, ","), "--marker", marker,
		"--foreign", foreignNamespace + "/e2e-foreign",
		"--webhook", net.JoinHostPort(service.Spec.ClusterIP, "443"), "--writer", writerAddress(t),
		"--reporter", filepath.Dir(reporter.files.TokenFile), "--reserver", filepath.Dir(reserver.files.TokenFile),
	}
	for _, name := range []string{"e2e-honest", "e2e-edited", "e2e-target"} {
		configuration, err := akri.Configurations.In("default").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		arguments = append(arguments, "--configuration", name+"="+string(configuration.UID))
	}
	command := exec.CommandContext(t.Context(), "nsenter", arguments...)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, os.Stderr
	require.NoError(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Kill() })
	require.NoError(t, node.JoinContainer(t.Context(), pod.Namespace, pod.Name, "main", command.Process.Pid))

	return func() (results attacks.Results) {
		t.Helper()
		require.NoError(t, command.Process.Signal(os.Interrupt))
		require.NoError(t, command.Wait())
		require.NoError(t, json.Unmarshal(output.Bytes(), &results))
		return results
	}
}

// changes are the changes of an honest client.
type changes struct {
	mu        sync.Mutex
	durations []time.Duration
}

// run makes a change at each honestInterval until ctx ends, and requires that each succeeds. It
// waits while honestCalls changes are in progress.
func (c *changes) run(ctx context.Context, t *testing.T, change func(context.Context, int) error) {
	var group errgroup.Group
	group.SetLimit(honestCalls)
	ticker := time.NewTicker(honestInterval)
	defer ticker.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		group.Go(func() error {
			started := time.Now()
			changing, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			assert.NoError(t, change(changing, i))
			c.mu.Lock()
			defer c.mu.Unlock()
			c.durations = append(c.durations, time.Since(started))
			return nil
		})
		<-ticker.C
	}
	_ = group.Wait()
}

func (c *changes) String() string {
	slices.Sort(c.durations)
	at := func(percent int) time.Duration {
		return c.durations[(len(c.durations)-1)*percent/100].Round(time.Millisecond)
	}
	return fmt.Sprintf("%d, p50 %s, p99 %s, max %s", len(c.durations), at(50), at(99), at(100))
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
