package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"

	"akri.sh/integration/mesh"
)

// walked is a Configuration with one device, of which a Pod can use the slot. walkedBrokers, in the
// namespace of its name, has a broker on each node and a slot more.
const (
	walked, walkedDevice               = "e2e-walk", "e2e-walk-8120fe"
	walkedBrokers, walkedBrokersDevice = "e2e-walk-brokers", "e2e-walk-brokers-8120fe"
)

// walkedLabel is the label of the nodes on which the brokers may run.
const walkedLabel = "walk"

// walkedProbe is a Pod that shows whether a device works.
type walkedProbe struct {
	namespace, configuration, device string
	// subject is the kind of the subject of the verdict, Instance if it is empty.
	subject string
	// spec is what the Pod has for nodes. A device of a Configuration with brokers works if Pods
	// with their spec get it. For others, taints state nothing about the device.
	spec string
}

var walkedProbes = []walkedProbe{
	{namespace: "default", configuration: walked, device: walkedDevice, spec: "tolerations: [{key: walk, operator: Exists}]"},
	{namespace: walkedBrokers, configuration: walkedBrokers, device: walkedBrokersDevice, spec: "nodeSelector: {" + walkedLabel + ": brokers}"},
}

// maxFaults is the number of faults at the same time.
const maxFaults = 3

// slotsInUse is the fault with which no slot is free.
const slotsInUse = "slots in use"

// toggle is a fault that a walk turns on and off.
type toggle struct{ on, off func(context.Context) error }

// toggles are the faults of a walk: services and a handler that do not run, Pods that hold slots, a
// quota that forbids brokers, brokers that are deleted, and nodes that take no Pods, or no brokers.
// Each combination is possible, so that turning a fault off does not wait: other faults can keep
// Pods from being ready.
func toggles() map[string]toggle {
	run := func(arguments ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := akri.Kubectl(ctx, "", arguments...)
			return err
		}
	}
	gone := func(service string) func(context.Context) error {
		return run("wait", "--for=delete", "pod", "--namespace", mesh.Namespace, "--selector=app.kubernetes.io/component="+service, "--timeout=3m")
	}
	all := map[string]toggle{}
	for service, workload := range map[string]string{
		"device-plugin-host": "akri-device-plugin-host", "discovery-operator": "akri-discovery-operator", "registrar": "akri-registrar",
		"config-plugin-allocator": "akri-config-plugin-allocator", "handler-debug-echo": "akri-debug-echo-discovery-daemonset",
	} {
		patch := func(selector string) func(context.Context) error {
			return run("patch", "daemonset", "--namespace", mesh.Namespace, workload, "--type=merge", "--patch",
				`{"spec":{"template":{"spec":{"nodeSelector":{"faults":`+selector+`}}}}}`)
		}
		all[service] = toggle{on: both(patch(`"none"`), gone(service)), off: patch("null")}
	}
	for service, deployment := range map[string]struct{ name, replicas string }{
		"instance-writer": {"akri-instance-writer", "2"}, "broker-controller": {"akri-controller-deployment", "1"},
	} {
		scale := func(replicas string) func(context.Context) error {
			return run("scale", "deployment", "--namespace", mesh.Namespace, deployment.name, "--replicas="+replicas)
		}
		all[service] = toggle{on: both(scale("0"), gone(service)), off: scale(deployment.replicas)}
	}
	all[slotsInUse] = toggle{
		on:  func(ctx context.Context) error { return akri.ApplyText(ctx, ownPod("walk-holder", walkedDevice)) },
		off: run("delete", "pod", "walk-holder", "--ignore-not-found"),
	}
	all["quota"] = toggle{
		on:  run("create", "quota", "none", "--namespace", walkedBrokers, "--hard=pods=0"),
		off: run("delete", "quota", "none", "--namespace", walkedBrokers, "--ignore-not-found"),
	}
	deleteBrokers := run("delete", "pods", "--all", "--namespace", walkedBrokers)
	for _, node := range akri.Cluster.Nodes() {
		name := node.Name()
		all["cordon of "+name] = toggle{on: run("cordon", name), off: run("uncordon", name)}
		all["label of "+name] = toggle{on: run("label", "node", name, walkedLabel+"-"), off: run("label", "node", name, walkedLabel+"=brokers")}
		all["taint of "+name] = toggle{on: run("taint", "node", name, "walk=on:NoSchedule"), off: run("taint", "node", name, "walk=on:NoSchedule-")}
	}
	all["deleted brokers"] = toggle{on: deleteBrokers, off: deleteBrokers}
	return all
}

// both returns a function that calls both functions.
func both(first, second func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := first(ctx); err != nil {
			return err
		}
		return second(ctx)
	}
}

// walkOfFaults turns random faults on and off. After each step, the verdict on a device is that it
// works exactly if a Pod gets it, and that on the brokers exactly if as many are ready as the
// Configuration wants. The conditions and the console have the same verdicts. AKRI_E2E_WALK is the
// number of steps.
func walkOfFaults(t *testing.T) {
	onlyDevicePlugins(t, "the services of nodes are those of device plugins")
	if selected.process("registrar") != "registrar" {
		t.Skip("the agent has the services of nodes in one process")
	}
	steps, random := repetitions(t, "AKRI_E2E_WALK", 3), seeded(t, "AKRI_E2E_WALK_SEED")
	apply(t, echoConfiguration(walked, 1, "", "foo0"))
	awaitInstances(t, "default", walked, walkedDevice)
	apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+walkedBrokers+"}}")
	selecting := strings.Replace(broker, "brokerPodSpec:", "brokerPodSpec:\n      "+walkedProbes[1].spec, 1)
	apply(t, strings.Replace(echoConfiguration(walkedBrokers, len(akri.Cluster.Nodes())+1, selecting, "foo0"), "namespace: default", "namespace: "+walkedBrokers, 1))
	all, on := toggles(), map[string]bool{}
	for _, node := range akri.Cluster.Nodes() {
		require.NoError(t, all["label of "+node.Name()].off(t.Context()))
		t.Cleanup(func() { require.NoError(t, all["label of "+node.Name()].on(context.WithoutCancel(t.Context()))) })
	}
	t.Cleanup(func() {
		for name := range on {
			require.NoError(t, all[name].off(context.WithoutCancel(t.Context())))
		}
	})
	awaitPage, stop := openConsole(t)
	requireAgreement := func() {
		for _, probe := range walkedProbes {
			state := probe.requireAgrees(t, on)
			awaitPage(probe.page(state))
		}
		requireBrokersAgree(t, on)
		if !on["broker-controller"] { // which writes the conditions
			for _, probe := range walkedProbes {
				probe.requireConditionsAgree(t, on)
			}
		}
	}
	requireAgreement()
	for range steps {
		names := slices.Sorted(maps.Keys(all))
		if len(on) == maxFaults { // with more, everything is broken in most steps
			names = slices.Sorted(maps.Keys(on))
		}
		name := names[random.IntN(len(names))]
		change := all[name].on
		if on[name] {
			change = all[name].off
		}
		require.NoError(t, change(t.Context()))
		if on[name] {
			delete(on, name)
		} else {
			on[name] = true
		}
		requireAgreement()
	}
	stop()
}

// seeded returns random numbers from the seed in the environment variable, or from one that it
// logs.
func seeded(t *testing.T, variable string) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(variable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, variable)
	}
	t.Logf("%s=%d", variable, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// requireAgrees waits until the verdict on the device is what a Pod shows, and returns it: the Pod
// gets the device exactly if that works, at least on some nodes, or waits only for a slot. A
// verdict that is Waiting has no result yet, and a slot is free again some seconds after its Pod.
func (p walkedProbe) requireAgrees(t *testing.T, on map[string]bool) (state explain.State) {
	t.Helper()
	began := time.Now()
	var last string
	await(t, fmt.Sprintf("a verdict on %s that a Pod confirms, with the faults %v", p.device, slices.Sorted(maps.Keys(on))), func(ctx context.Context) error {
		var text string
		var err error
		if p.subject == "" {
			state, text, err = verdictOn(ctx, "Instance", p.namespace, p.device)
		} else {
			state, text, err = verdictOn(ctx, p.subject, p.namespace, p.configuration)
		}
		if err != nil {
			return fmt.Errorf("%w; before: %s", err, last)
		}
		if state == explain.Waiting {
			return fmt.Errorf("no result yet: %s", text)
		}
		got, why, err := p.run(ctx)
		if err != nil {
			return fmt.Errorf("%w; before: %s", err, last)
		}

		last = fmt.Sprintf("%s (%s), and a Pod got the device: %t %v", state, text, got, why)
		works := state == explain.Works || state == explain.Partly
		onlyCapacity := slices.Equal(why, []explain.CauseID{explain.CapacityUsed})
		switch {
		case got && works, !got && !works && !onlyCapacity:
			return nil
		case on[slotsInUse] && p.device == walkedDevice && works && onlyCapacity:
			return nil
		case onlyCapacity:
			return fmt.Errorf("no result yet: %s", last)
		}
		return errors.New(last)
	})
	t.Logf("%v: %s: %s, after %s", slices.Sorted(maps.Keys(on)), p.device, last, time.Since(began).Round(time.Second))
	return state
}

// page is that of the device with the verdict.
func (p walkedProbe) page(state explain.State) page {
	return page{
		path:    "/devices/" + p.namespace + "/" + p.device,
		matches: `<dt>Instance</dt><dd><span class="state short ` + strings.ToLower(string(state)) + `">`,
	}
}

// requireConditionsAgree waits until the conditions have the verdicts of `kubectl akri explain`.
func (p walkedProbe) requireConditionsAgree(t *testing.T, on map[string]bool) {
	t.Helper()
	for kind, condition := range map[string]string{
		explain.SubjectDevices: akriv0.ConditionDevicesWorking, explain.SubjectBrokers: akriv0.ConditionBrokersWorking,
	} {
		await(t, fmt.Sprintf("%s of %s as explained, with the faults %v", condition, p.configuration, slices.Sorted(maps.Keys(on))), func(ctx context.Context) error {
			state, text, err := verdictOn(ctx, kind, p.namespace, p.configuration)
			if err != nil {
				return err
			}
			c, err := akri.Configurations.In(p.namespace).Get(ctx, p.configuration, metav1.GetOptions{})
			if err != nil {
				return err
			}
			stated := meta.FindStatusCondition(c.Status.Conditions, condition)
			want := string(state)
			if state == explain.Skipped {
				want = akriv0.ReasonNotNeeded
			}
			if stated == nil || stated.Reason != want {
				return fmt.Errorf("the verdict is %s (%s), and the condition %+v", state, text, stated)
			}
			return nil
		})
	}
}

// run runs a Pod that requests the device, and deletes it. It returns whether the Pod has got the
// device or, if not, the causes in the verdict of `kubectl akri explain` on the Pod.
func (p walkedProbe) run(ctx context.Context) (got bool, why []explain.CauseID, err error) {
	const name = "walk-probe"
	pod := strings.Replace(ownPod(name, p.device), "spec:", "spec:\n  "+p.spec, 1)
	if err := akri.ApplyText(ctx, pod); err != nil {
		return false, nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		_, deleteErr := akri.Kubectl(ctx, "", "delete", "pod", name, "--grace-period=1", "--wait")
		err = errors.Join(err, deleteErr)
	}()
	err = mesh.AwaitObject(ctx, "the result of "+name, akri.Kubernetes.CoreV1().Pods("default"), name, func(pod *corev1.Pod) error {
		got = mesh.Ready(pod)
		if !got && !unschedulable(pod) && pod.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("the status is %+v", pod.Status)
		}
		return nil
	})
	if err != nil || got {
		return got, nil, err
	}

	text, err := kubectlAkri(ctx, "explain", "pod", name, "--output=json")
	if err != nil {
		return false, nil, err
	}
	var explained explanation
	if err := json.Unmarshal([]byte(text), &explained); err != nil {
		return false, nil, err
	}
	// The links also state what is wrong without being the reason, such as a handler that does not
	// run while the kubelet offers the device.
	for _, verdict := range explained.Verdicts {
		if verdict.Subject.Kind == "Pod" {
			for _, cause := range verdict.Causes {
				why = append(why, cause.ID)
			}
		}
	}
	return false, why, nil
}

// requireBrokersAgree waits until the verdict on the brokers is what their Pods show. The device
// has one on each node.
func requireBrokersAgree(t *testing.T, on map[string]bool) {
	t.Helper()
	began, wanted := time.Now(), len(akri.Cluster.Nodes())
	var last string
	await(t, fmt.Sprintf("a verdict that brokers confirm, with the faults %v", slices.Sorted(maps.Keys(on))), func(ctx context.Context) error {
		before, err := readyBrokers(ctx)
		if err != nil {
			return err
		}
		state, text, err := verdictOn(ctx, explain.SubjectBrokers, walkedBrokers, walkedBrokers)
		if err != nil {
			return err
		}
		after, err := readyBrokers(ctx)
		if err != nil {
			return err
		}

		last = fmt.Sprintf("%s (%s), and %d of %d brokers are ready", state, text, after, wanted)
		switch {
		case state == explain.Waiting || before != after:
			return fmt.Errorf("no result yet: %s", last)
		case (state == explain.Works) != (after == wanted):
			return errors.New(last)
		}
		return nil
	})
	t.Logf("%v: %s, after %s", slices.Sorted(maps.Keys(on)), last, time.Since(began).Round(time.Second))
}

// readyBrokers returns the number of brokers that are ready and not being deleted.
func readyBrokers(ctx context.Context) (int, error) {
	pods, err := akri.Kubernetes.CoreV1().Pods(walkedBrokers).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	ready := 0
	for i := range pods.Items {
		if mesh.Ready(&pods.Items[i]) {
			ready++
		}
	}
	return ready, nil
}

// verdictOn returns the verdict of `kubectl akri explain` on a subject: an Instance, or the devices
// or brokers of a Configuration. The state is empty if the subject does not exist.
func verdictOn(ctx context.Context, subject, namespace, name string) (state explain.State, message string, err error) {
	kind := strings.ToLower(subject)
	if subject == explain.SubjectBrokers || subject == explain.SubjectDevices {
		kind = "configuration"
	}
	text, err := kubectlAkri(ctx, "explain", kind, name, "--namespace="+namespace, "--output=json")
	if err != nil {
		return "", "", err
	}
	var explained explanation
	if err := json.Unmarshal([]byte(text), &explained); err != nil {
		return "", "", err
	}
	for _, verdict := range explained.Verdicts {
		if verdict.Subject.Kind == subject {
			return verdict.State, verdict.Message, nil
		}
	}
	return "", text, nil
}
