package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/attacks"
	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// TestAttacks attacks the webhook from two Pods with CPU limits, and instance-writer with the
// identities of one node, while clients make ten honest changes a second on the other node. All of
// these succeed, a new Configuration gets its broker, no service restarts, and nothing of the other
// node leaks. It prints latencies. AKRI_E2E_ATTACK is the duration (15s); if it is set, the changes
// are made for the same time before the attack, and during the attack of one of the Pods, too.
func TestAttacks(t *testing.T) {
	selectForm(separate().resources())
	require.NoError(t, akri.Install(t.Context(), "instance-writer.replicas=2"))
	inOrder(t, attacked)
	_, err := akri.Uninstall(t.Context())
	require.NoError(t, err)
}

const (
	// marker is in a property and the id of a device on the honest node, and in the details and the
	// Secret of a Configuration that allows only that node.
	marker = "secret-of-the-honest-node"
	// deviceID is that of the device on the honest node.
	deviceID = marker + "-id"
	// foreignNamespace has a Configuration with devices on the honest node.
	foreignNamespace = "e2e-foreign-namespace"
	honestInterval   = 200 * time.Millisecond
	// honestCalls is the number of calls that an honest client has in progress at most: kubelets
	// make few at once.
	honestCalls = 4
	// editedConfigurations are edited by turns. They are more than the edits in progress, so that
	// these seldom conflict with each other: the API server repeats an edit that conflicts, with
	// the review of the webhook.
	editedConfigurations = honestCalls + 1
	// honestTimeout is long enough for a machine that is slow for other reasons.
	honestTimeout = 2 * time.Minute
	// baselineDuration is the time for which changes are made before the attack, so that the rates
	// can be compared.
	baselineDuration = 5 * time.Second
)

// minRates are the parts of the changes of that time that clients make during the attack at least.
// With 0.2, an edit takes 4 s: slow senders could once delay each edit by 5 s.
var minRates = map[string]float64{"edits": 0.2, "reservations": 0.1}

// guarded is a Configuration that only the honest node may have.
const guarded = `
apiVersion: v1
kind: Secret
metadata: {name: e2e-guarded, namespace: default}
stringData: {password: %[2]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: e2e-guarded, namespace: default}
rules: [{apiGroups: [""], resources: [secrets], resourceNames: [e2e-guarded], verbs: [get, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: e2e-guarded, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: e2e-guarded}
subjects: [{kind: ServiceAccount, name: akri-instance-writer, namespace: %[3]s}]
---
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: e2e-guarded, namespace: default}
spec:
  nodes: {names: [%[1]s]}
  discoveryHandler:
    name: e2eHonest
    discoveryDetails: "# %[2]s"
    discoveryProperties:
      - {name: password, valueFrom: {secretKeyRef: {name: e2e-guarded, key: password}}}
`

// edited returns the name of the Configuration that an edit changes.
func edited(edit int) string { return "e2e-edited-" + strconv.Itoa(edit%editedConfigurations) }

// applyGuarded waits until the honest node receives what the hostile one must not.
func applyGuarded(t *testing.T, honest string) {
	t.Helper()
	apply(t, fmt.Sprintf(guarded, honest, marker, mesh.Namespace))
	own := watchConfigurations(t, "e2eHonest")
	for {
		request := own.next("e2e-guarded").GetRequest()
		require.Contains(t, request.GetDetails(), marker)
		if string(request.GetProperties()["password"].GetValue()) == marker {
			return
		}
	}
}

func attacked(t *testing.T) {
	baseline, duration, measured := attackDurations(t)
	honestNode, hostileNode := akri.Cluster.Nodes()[0], akri.Cluster.Nodes()[1]
	handler, victims := applyAttacked(t, honestNode)
	instance, protected := instanceOf("e2e-honest", honestNode), instanceOf("e2e-guarded", honestNode)

	_, honest := callersOn(t, honestNode.Name())
	client := instancev1.NewInstanceServiceClient(honest.connect(t, writerAddress(t)))
	before := restartCounts(t)

	without := change(t, "without attack", baseline, client, honestNode.Name(), instance)
	onBoth, onWebhook := attackCommands(t, hostileNode.Name(), victims...)
	stops := map[string]func() attacks.Results{stolenNode: attackFrom(t, hostileNode.Name(), stolenNode, onBoth)}
	if measured {
		change(t, "during the attack of one Pod", duration, client, honestNode.Name(), instance)
	}
	stops[secondAttacker] = attackFrom(t, hostileNode.Name(), secondAttacker, onWebhook)
	during := change(t, "during the attack of two Pods", duration, client, honestNode.Name(), instance)
	for client, rate := range during {
		require.Greater(t, rate, minRates[client]*without[client], "changes a second: %s", client)
	}

	requireReported(t, handler, honestNode.Name(), deviceID)
	apply(t, echoConfiguration("e2e-attacked", 1, broker, "foo2"))
	awaitBrokers(t, "default", "e2e-attacked", 1)

	results := map[string]attacks.Results{}
	for pod, stop := range stops {
		results[pod] = stop()
	}

	require.Equal(t, before, restartCounts(t))
	for attacker, result := range results {
		t.Logf("attacks of %s: %+v", attacker, result)
		require.Zero(t, result.Leaked, "responses with data of the other node or with the name of the other namespace")
		requireHeldConnections(t, result)
	}
	requireAttacksOnWebhook(t, results[stolenNode])
	requireAttacksOnWriter(t, results[stolenNode])
	awaitInstances(t, "default", "e2e-guarded", protected)
	requireUsable(t, instance)
}

// attackDurations returns the time for which changes are made before and during the attack, and
// whether latencies are measured.
func attackDurations(t *testing.T) (baseline, attack time.Duration, measured bool) {
	t.Helper()
	text := os.Getenv("AKRI_E2E_ATTACK")
	if text == "" {
		return baselineDuration, 15 * time.Second, false
	}
	duration, err := time.ParseDuration(text)
	require.NoError(t, err)
	return duration, duration, true
}

// instanceOf returns the name of the Instance that the Configuration has for the device of
// applyAttacked.
func instanceOf(configuration string, node cluster.Node) string {
	return instanceName(configuration, deviceID, node.Name(), false)
}

// applyAttacked creates the Configurations that are edited and attacked. It returns the handler of
// a device that only the honest node sees, and its Instances as namespace/name.
func applyAttacked(t *testing.T, honest cluster.Node) (handler *listHandler, victims []string) {
	t.Helper()
	handler = handleAs(t, honest, &discoveryv0.RegisterDiscoveryHandlerRequest{Name: "e2eHonest", Endpoint: "e2eHonest"},
		&discoveryv0.Device{Id: deviceID, Properties: map[string]string{"X": marker}})
	apply(t, configurationOf("e2e-honest", "e2eHonest", ""))
	apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+foreignNamespace+"}\n")
	apply(t, strings.Replace(configurationOf("e2e-foreign", "e2eHonest", ""), "namespace: default", "namespace: "+foreignNamespace, 1))
	applyGuarded(t, honest.Name())
	for i := range editedConfigurations {
		apply(t, echoConfiguration(edited(i), 1, "", "foo0"))
	}
	apply(t, echoConfiguration("e2e-target", 1, "", "foo1"))

	for configuration, namespace := range map[string]string{
		"e2e-honest": "default", "e2e-foreign": foreignNamespace, "e2e-guarded": "default",
	} {
		instance := instanceOf(configuration, honest)
		awaitInstances(t, namespace, configuration, instance)
		victims = append(victims, namespace+"/"+instance)
	}
	return handler, victims
}

// requireReported requires that a changed device of the honest node reaches its Instance, and that
// the status still has the handler of the node.
func requireReported(t *testing.T, handler *listHandler, node, id string) {
	t.Helper()
	handler.send(t, &discoveryv0.Device{Id: id, Properties: map[string]string{"X": marker, "DURING": "the attack"}})
	awaitInstancesOf(t, "default", "e2e-honest", "the changed property", func(found []akriv0.Instance) error {
		if !slices.ContainsFunc(found, func(i akriv0.Instance) bool { return i.Spec.BrokerProperties["DURING"] != "" }) {
			return errors.New("no Instance has the property")
		}
		return nil
	})

	configuration, err := akri.Configurations.In("default").Get(t.Context(), "e2e-honest", metav1.GetOptions{})
	require.NoError(t, err)
	at := slices.IndexFunc(configuration.Status.Nodes, func(n akriv0.NodeStatus) bool { return n.Name == node })
	require.GreaterOrEqual(t, at, 0, "%v", configuration.Status.Nodes)
	require.True(t, slices.ContainsFunc(configuration.Status.Nodes[at].Handlers, func(h akriv0.HandlerStatus) bool {
		return h.Name == "e2eHonest" && h.Status == akriv0.HandlerActive
	}), "%v", configuration.Status.Nodes[at])
}

// requireHeldConnections requires that an attacker had as many connections as the webhook allows
// one address, and that the webhook has ended them. With HTTP/2, a client could prevent the
// responses to many reviews with one connection.
func requireHeldConnections(t *testing.T, results attacks.Results) {
	t.Helper()
	for _, attack := range []string{
		"HTTP/2 with a window of 0: protocol http/1.1", "HTTP/2 with a window of 0: connection closed",
		"slow review: connection closed", "slow review: connection refused",
	} {
		require.Positive(t, results.Webhook[attack], attack)
	}
	require.NotContains(t, results.Webhook, "HTTP/2 with a window of 0: protocol h2")
}

// requireAttacksOnWebhook requires that each kind of review reached the webhook.
func requireAttacksOnWebhook(t *testing.T, results attacks.Results) {
	t.Helper()
	for _, attack := range []string{"8 MiB of objects: 413", "40,000 containers: 200", "a large exponent: 200", "a forged user: 200"} {
		require.Positive(t, results.Webhook[attack], attack)
	}
}

// requireAttacksOnWriter requires that each attack reached instance-writer, and was not refused
// before: an attack with a wrong identity would prove nothing.
func requireAttacksOnWriter(t *testing.T, results attacks.Results) {
	t.Helper()
	made := map[string]int{}
	for result, count := range results.Node {
		attack, code, _ := strings.Cut(result, ": ")
		require.NotContains(t, []string{"Unauthenticated", "PermissionDenied", "InvalidArgument", "Unimplemented"}, code, result)
		made[attack] += count
	}
	for _, attack := range []string{"reports", "watch of Configurations", "watch of Instances", "reservations", "releases", "own devices"} {
		require.Positive(t, made[attack], attack)
	}
	require.Positive(t, results.Node["reservations: NotFound"])
	require.Positive(t, results.Node["watch of Configurations: OK"])
}

// change makes ten honest changes a second on a node, prints latencies, and returns the changes in
// a second by client.
func change(
	t *testing.T, title string, duration time.Duration, client instancev1.InstanceServiceClient, node, instance string,
) map[string]float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	claims := []*instancev1.SlotClaim{{Namespace: "default", Instance: instance}}
	var edits, reservations changes
	var group sync.WaitGroup
	reviewsBefore, secondsBefore := reviews(t)

	group.Go(func() {
		edits.run(ctx, t, func(ctx context.Context, i int) error {
			patch := fmt.Appendf(nil, `{"spec":{"capacity":%d}}`, i/editedConfigurations%5+1)
			_, err := akri.Configurations.In("default").Patch(ctx, edited(i), types.MergePatchType, patch, metav1.PatchOptions{})
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

	made, seconds := reviews(t)
	made, seconds = made-reviewsBefore, seconds-secondsBefore
	t.Logf("%s: edits of a Configuration: %s, %.3f s on average in the webhook; slots reserved and released: %s",
		title, &edits, seconds/made, &reservations)
	require.Greater(t, made, float64(len(edits.durations))/2, "edits that change the spec are reviewed")
	return map[string]float64{
		"edits":        float64(len(edits.durations)) / duration.Seconds(),
		"reservations": float64(len(reservations.durations)) / duration.Seconds(),
	}
}

// reviews returns the number of reviews that the API server has sent to the webhook, and the
// seconds in which it received the responses.
func reviews(t *testing.T) (count, seconds float64) {
	t.Helper()
	text, err := akri.Kubernetes.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	require.NoError(t, err)

	for _, metric := range families["apiserver_admission_webhook_admission_duration_seconds"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "name" && label.GetValue() == "akri-webhook-configuration.akri.svc" {
				count += float64(metric.GetHistogram().GetSampleCount())
				seconds += metric.GetHistogram().GetSampleSum()
			}
		}
	}
	return count, seconds
}

// The Pods that attack. Both attack the webhook, so that it has two addresses to defend itself
// against.
const (
	stolenNode     = "e2e-attacker" // attacks instance-writer, too
	secondAttacker = "e2e-second-attacker"
)

// attackCommands builds the program that attacks, and returns the command that attacks the webhook
// and instance-writer, with the identities of the hostile node, and the one that attacks only the
// webhook.
func attackCommands(t *testing.T, hostile string, victims ...string) (onBoth, onWebhook []string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "akri-attack")
	built, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "akri.sh/integration/cmd/akri-attack").CombinedOutput()
	require.NoError(t, err, "%s", built)
	service, err := akri.Kubernetes.CoreV1().Services(mesh.Namespace).Get(t.Context(), "akri-webhook-configuration", metav1.GetOptions{})
	require.NoError(t, err)
	onWebhook = []string{
		program, "--foreign", foreignNamespace + "/e2e-foreign", "--webhook", net.JoinHostPort(service.Spec.ClusterIP, "443"),
	}

	reporter, reserver := callersOn(t, hostile)
	onBoth = append(slices.Clone(onWebhook),
		"--node", hostile, "--victim", strings.Join(victims, ","), "--marker", marker, "--handler", "e2eHonest,debugEcho",
		"--writer", writerAddress(t),
		"--reporter", filepath.Dir(reporter.files.TokenFile), "--reserver", filepath.Dir(reserver.files.TokenFile))
	configurations := []string{"e2e-honest", "e2e-target", "e2e-guarded"}
	for i := range editedConfigurations {
		configurations = append(configurations, edited(i))
	}
	for _, name := range configurations {
		configuration, err := akri.Configurations.In("default").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		onBoth = append(onBoth, "--configuration", name+"="+string(configuration.UID))
	}

	return onBoth, onWebhook
}

// attackFrom starts a program in the network and with the CPU limit of a new Pod on the node. stop
// returns its results.
func attackFrom(t *testing.T, hostile, name string, arguments []string) (stop func() attacks.Results) {
	t.Helper()
	apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[2]s, namespace: default}
spec:
  nodeName: %[1]s
  terminationGracePeriodSeconds: 1
  containers:
    - {name: main, image: "cluster.invalid/pause:1", imagePullPolicy: IfNotPresent, resources: {limits: {cpu: 500m}}}
`, hostile, name))
	pod := awaitReadyPod(t, "default", name)
	node, err := akri.Cluster.Node(hostile)
	require.NoError(t, err)
	pid, err := node.ContainerPID(t.Context(), pod.Namespace, pod.Name, "main")
	require.NoError(t, err)

	command := exec.CommandContext(t.Context(), "nsenter", append([]string{"--net=" + networkOf(pid)}, arguments...)...)
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
			changing, cancel := context.WithTimeout(t.Context(), honestTimeout)
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
