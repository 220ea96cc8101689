package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/cluster"
	"akri.sh/integration/devices"
	"akri.sh/integration/mesh"
)

// TestMove moves a cluster with workloads from upstream Akri 0.13 to this project, with the
// commands of docs/how-to/move-from-akri.md. It needs a cluster on which no Akri is installed. The
// processes of upstream Akri are stand-ins, or the binaries in the directory AKRI_E2E_UPSTREAM: see
// adoption/README.md.
func TestMove(t *testing.T) {
	if os.Getenv("AKRI_E2E_MOVE") == "" {
		t.Skip("AKRI_E2E_MOVE is not set")
	}
	inOrder(t,
		movedCluster,
		movedNodeLater,
		movedRelease,
	)
}

// The Configurations of the users of upstream Akri. The handler of moveDevices is part of the
// release of upstream Akri. That of the others is a handler of the user, which keeps running.
// moveRelease is part of the release, and the others are not.
const (
	moveEcho    = "move-echo"
	moveUsers   = "move-users"
	moveDone    = "move-done"
	moveWorking = "move-working"
	moveDevices = "move-devices"
	moveRelease = "move-release"
)

const moveServices = `
  instanceServiceSpec: {type: ClusterIP, ports: [{name: http, port: 80, targetPort: 8083}]}
  configurationServiceSpec: {type: ClusterIP, ports: [{name: http, port: 80, targetPort: 8083}]}
`

// endingBroker is a Job that ends at once.
var endingBroker = strings.NewReplacer(
	"sample-broker:dev", "registrar:dev\n            args: [--version]",
	"            ports: [{containerPort: 8083}]\n            readinessProbe: {httpGet: {path: /healthz, port: 8083}, periodSeconds: 1}\n", "",
).Replace(jobBroker)

// moveManifests returns what the users of upstream Akri have applied.
func moveManifests() []string {
	zram := strings.NewReplacer("e2e-zram", moveDevices).Replace(zramConfiguration)
	return []string{
		echoConfiguration(moveEcho, 3, broker, "foo0", "foo1") + moveServices,
		echoConfiguration(moveUsers, 4, "", "foo0"),
		echoConfiguration(moveDone, 1, endingBroker, "foo0"),
		echoConfiguration(moveWorking, 1, jobBroker, "foo0"),
		zram,
	}
}

// movedCluster moves all nodes at once, with all kinds of workloads.
func movedCluster(t *testing.T) {
	reserve(t, "zram")
	zram := plug(t, "first")
	up := installUpstream(t, upstreamValues)
	before := up.run(t, zram)

	start := up.move(t)
	helm := time.Since(start)
	up.awaitAdopted(t)
	awaitDecision(t, akriv0.ResourcesDevicePlugin, akriv0.ResourcesInstancesExist)
	t.Logf("The move took %.1f s until helm returned, and %.1f s until all devices were reported.", helm.Seconds(), time.Since(start).Seconds())
	requireMoved(t, before)
	for _, command := range up.commands(t, "## Check") {
		t.Log(up.shell(t, command))
	}

	checkAfterMove(t, before, zram)
	checkReplaced(t)
}

// movedNodeLater moves a node later than the other: its kubelet does not run meanwhile, so that the
// agent of upstream Akri and the brokers keep running there.
func movedNodeLater(t *testing.T) {
	reserve(t, "zram")
	zram := plug(t, "first")
	up := installUpstream(t, upstreamValues)
	before := up.run(t, zram)
	first, later := akri.Cluster.Nodes()[0], akri.Cluster.Nodes()[1]
	require.NoError(t, later.StopKubelet(t.Context()))
	t.Cleanup(func() {
		if later.State() == cluster.NoKubelet {
			require.NoError(t, later.StartKubelet(context.WithoutCancel(t.Context())))
		}
	})
	// The cluster services are scheduled when Kubernetes has found that the node is down. The
	// release is removed before, because upstream's controller removes the brokers of such a node.
	up.move(t, "--timeout=60s", "--timeout=5s || true", " --wait", "",
		"kubectl get akric,akrii,pods", "kubectl wait node "+later.Name()+" --for=condition=Ready=Unknown --timeout=90s\nkubectl get akric,akrii,pods")
	up.awaitAdopted(t, first.Name())
	requireMoved(t, before)

	require.NoError(t, later.StartKubelet(t.Context()))
	up.awaitAdopted(t)
	requireMoved(t, before)
	checkAfterMove(t, before, zram)
}

// movedRelease moves a release of upstream Akri that has a Configuration, into the same namespace.
// The Configuration and its brokers are created again.
func movedRelease(t *testing.T) {
	up := installUpstream(t, upstreamValues+upstreamConfiguration)
	nodes := len(akri.Cluster.Nodes())
	apply(t, echoConfiguration(moveEcho, 2, broker, "foo0"))
	awaitBrokers(t, "default", moveEcho, nodes)
	former := podUIDs(awaitBrokers(t, "default", moveRelease, nodes))
	before := observeMove(t).without(moveRelease)

	up.move(t, "akric akri-udev", "akric "+moveRelease, "--namespace akri-system --create-namespace", "--namespace default")
	up.awaitAdopted(t)
	requireMoved(t, before)
	awaitInstances(t, "default", moveRelease, moveRelease+"-8120fe")
	for name, uid := range podUIDs(awaitBrokers(t, "default", moveRelease, nodes)) {
		require.Contains(t, former, name)
		require.NotEqual(t, former[name], uid)
	}
}

// run applies the objects of the users and returns the state when all work.
func (u upstreamAkri) run(t *testing.T, zram *devices.Zram) moveState {
	t.Helper()
	nodes := len(akri.Cluster.Nodes())
	for _, manifest := range moveManifests() {
		apply(t, manifest)
	}
	awaitInstances(t, "default", moveDevices, movedDevices(zram)...)
	for _, pod := range awaitBrokers(t, "default", moveDevices, nodes) {
		content := query(t, &pod).Devices
		require.NotEmpty(t, content)
		require.Contains(t, content[0].Content, zram.Content)
	}
	awaitBrokers(t, "default", moveEcho, 2*nodes)
	awaitBrokers(t, "default", moveWorking, 1)
	awaitJobEnd(t, moveDone)
	for _, service := range []string{moveEcho, moveEcho + "-8120fe", moveEcho + "-a19705", moveDevices} {
		awaitService(t, "default", service+"-svc", true)
	}

	// One after the other: two nodes of upstream Akri that reserve a slot at once reserve the same
	// one, and one of the Pods is refused.
	apply(t, ownPod("move-own", moveUsers+"-8120fe"))
	awaitReadyPod(t, "default", "move-own")
	for replicas := range 2 {
		manifest := deployment("move-deployment", moveUsers, replicas+1)
		require.NoError(t, akri.ApplyText(t.Context(), manifest))
		awaitRunning(t, "move-deployment", replicas+1)
	}
	t.Cleanup(func() {
		require.NoError(t, akri.DeleteText(context.WithoutCancel(t.Context()), deployment("move-deployment", moveUsers, 2)))
	})
	u.requireUpstreamSlots(t)
	return observeMove(t)
}

// requireUpstreamSlots checks that the slots have upstream's form.
func (upstreamAkri) requireUpstreamSlots(t *testing.T) {
	t.Helper()
	awaitUsage(t, moveUsers+"-8120fe", "to have upstream's form", func(usage map[string]string) bool {
		virtual := slices.DeleteFunc(values(usage), func(holder string) bool { return !strings.HasPrefix(holder, "C:"+moveUsers+"-") })
		return len(usage) == 3 && len(virtual) == 2
	})
	for _, instance := range instances(t, "default", moveUsers) {
		require.ElementsMatch(t, clusterNodes(), instance.Finalizers)
		require.NotContains(t, instance.Annotations, akriv0.DeviceIDAnnotation)
	}
}

func clusterNodes() (names []string) {
	for _, node := range akri.Cluster.Nodes() {
		names = append(names, node.Name())
	}
	return names
}

// movedDevices returns the Instances of a device of all nodes.
func movedDevices(zram *devices.Zram) (names []string) {
	for _, node := range clusterNodes() {
		names = append(names, instanceName(moveDevices, zram.DevPath(), node, false))
	}
	return names
}

// awaitJobEnd waits until the Job of the Configuration's only Instance is complete.
func awaitJobEnd(t *testing.T, configuration string) {
	t.Helper()
	jobs := akri.Kubernetes.BatchV1().Jobs("default")
	awaitObjects(t, "end of the Job of "+configuration, jobs, ofConfiguration(configuration), func(found []batchv1.Job) error {
		if len(found) != 1 || found[0].Status.Succeeded != 1 {
			return fmt.Errorf("%d Jobs: %+v", len(found), found)
		}
		return nil
	})
}

// moveState is what a move must not change, by kind and name.
type moveState map[string]string

// observeMove returns the Pods of the users with their containers, and the Jobs, Services and
// Instances with their slots.
func observeMove(t *testing.T) moveState {
	t.Helper()
	state := moveState{}
	pods, err := akri.Kubernetes.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of!=akri"})
	require.NoError(t, err)
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil {
			continue
		}
		for _, container := range pod.Status.ContainerStatuses {
			state["Pod "+pod.Name] += fmt.Sprint(pod.UID, pod.Spec.NodeName, container.ContainerID, container.RestartCount, ";")
		}
	}
	jobs, err := akri.Kubernetes.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, job := range jobs.Items {
		state["Job "+job.Name] = string(job.UID)
	}
	services, err := akri.Kubernetes.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, service := range services.Items {
		state["Service "+service.Name] = fmt.Sprint(service.UID, service.Spec.ClusterIP, service.Spec.Selector)
	}
	found, err := akri.Instances.In("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, instance := range found.Items {
		state["Instance "+instance.Name] = string(instance.UID)
		for slot, holder := range instance.Spec.DeviceUsage {
			if holder != "" {
				state["slot "+slot] = holder
			}
		}
	}
	return state
}

// without returns the state without the objects of a Configuration.
func (s moveState) without(configuration string) moveState {
	kept := maps.Clone(s)
	maps.DeleteFunc(kept, func(object, _ string) bool { return strings.Contains(object, configuration) })
	return kept
}

// requireMoved checks that all objects of the state are unchanged.
func requireMoved(t *testing.T, before moveState) {
	t.Helper()
	now := observeMove(t)
	for object, state := range before {
		require.Equal(t, state, now[object], object)
	}
}

// checkAfterMove checks that this project serves the devices, workloads and handlers, and that the
// objects of the users stay.
func checkAfterMove(t *testing.T, before moveState, zram *devices.Zram) {
	t.Helper()
	nodes := len(akri.Cluster.Nodes())

	// Upstream Akri does not release the slot of a Job that has ended. When it is released, also
	// the other slots have been compared with the devices of the Pods.
	awaitFree(t, moveDone+"-8120fe")
	before = before.without(moveDone)
	requireMoved(t, before)

	// A Pod gets a slot, and releases it.
	apply(t, ownPod("move-new", moveUsers))
	require.Equal(t, "foo0", query(t, awaitReadyPod(t, "default", "move-new")).Env[description])
	awaitSlotsInUse(t, moveUsers+"-8120fe", 4)
	require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), "move-new", metav1.DeleteOptions{}))
	awaitSlotsInUse(t, moveUsers+"-8120fe", 3)

	// A device is plugged in, and the one that upstream Akri has found is unplugged.
	second := plug(t, "second")
	awaitInstances(t, "default", moveDevices, slices.Concat(movedDevices(zram), movedDevices(second))...)
	awaitBrokers(t, "default", moveDevices, 2*nodes)
	unplug(t, zram)
	awaitInstances(t, "default", moveDevices, movedDevices(second)...)
	awaitBrokers(t, "default", moveDevices, nodes)
	unplug(t, second)
	awaitInstances(t, "default", moveDevices)
	awaitService(t, "default", moveDevices+"-svc", false)
	requireMoved(t, before.without(moveDevices))
}

// checkReplaced checks that Pods with slots of upstream Akri are replaced, and their slots
// released.
func checkReplaced(t *testing.T) {
	t.Helper()
	pods := akri.Kubernetes.CoreV1().Pods("default")
	for _, broker := range awaitBrokers(t, "default", moveEcho, 2*len(akri.Cluster.Nodes())) {
		require.NoError(t, pods.Delete(t.Context(), broker.Name, *metav1.NewDeleteOptions(0)))
		awaitPod(t, broker.Name, "a new broker", func(pod *corev1.Pod) bool { return pod.UID != broker.UID && mesh.Ready(pod) })
	}
	former := awaitRunning(t, "move-deployment", 2)
	for _, pod := range former {
		require.NoError(t, pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	awaitRunningWithout(t, "move-deployment", 2, former[0].Name, former[1].Name)
	require.NoError(t, pods.Delete(t.Context(), "move-own", metav1.DeleteOptions{}))
	awaitSlotsInUse(t, moveUsers+"-8120fe", 2)
}

// awaitSlotsInUse waits until count slots of the Instance are in use.
func awaitSlotsInUse(t *testing.T, instance string, count int) {
	t.Helper()
	awaitUsage(t, instance, fmt.Sprintf("to have %d slots in use", count), func(usage map[string]string) bool {
		return len(slotHolders(usage)) == count
	})
}
