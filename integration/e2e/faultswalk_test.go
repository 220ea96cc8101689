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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/mesh"
	"akri.sh/libs/inspect/explain"
)

// walked is a Configuration with one device, of which a Pod can use the slot. That of the same name
// in the namespace walkedBrokers has brokers.
const (
	walked, walkedDevice = "e2e-walk", "e2e-walk-8120fe"
	walkedBrokers        = "e2e-walk-brokers"
)

// maxFaults is the number of faults at the same time.
const maxFaults = 3

// slotsInUse is the fault with which no slot is free.
const slotsInUse = "slots in use"

// toggle is a fault that a walk turns on and off.
type toggle struct{ on, off func(context.Context) error }

// toggles are the faults of a walk: services and a handler that do not run, Pods that hold slots, a
// quota that forbids brokers, brokers that are deleted, and nodes that take no Pods. Each
// combination is possible, so that turning a fault off does not wait: other faults can keep Pods
// from being ready.
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

// walkOfFaults turns random faults on and off. After each step, the verdict on the device is that
// it works exactly if a Pod gets it, and that on the brokers exactly if as many are ready as the
// Configuration wants. AKRI_E2E_WALK is the number of steps.
func walkOfFaults(t *testing.T) {
	onlyDevicePlugins(t, "the services of nodes are those of device plugins")
	if selected.process("registrar") != "registrar" {
		t.Skip("the agent has the services of nodes in one process")
	}
	steps := 3
	if text := os.Getenv("AKRI_E2E_WALK"); text != "" {
		var err error
		steps, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	seed := rand.Uint64()
	if text := os.Getenv("AKRI_E2E_WALK_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("AKRI_E2E_WALK_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	apply(t, echoConfiguration(walked, 1, "", "foo0"))
	awaitInstances(t, "default", walked, walkedDevice)
	apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+walkedBrokers+"}}")
	apply(t, strings.Replace(echoConfiguration(walkedBrokers, 2, broker, "foo0"), "namespace: default", "namespace: "+walkedBrokers, 1))
	all, on := toggles(), map[string]bool{}
	t.Cleanup(func() {
		for name := range on {
			require.NoError(t, all[name].off(context.WithoutCancel(t.Context())))
		}
	})
	requireProbeAgrees(t, on)
	requireBrokersAgree(t, on)
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
		requireProbeAgrees(t, on)
		requireBrokersAgree(t, on)
	}
}

// requireProbeAgrees waits until the verdict on the device is what a Pod shows: it gets the device
// exactly if that works, at least on some nodes, or waits only for a slot. The Pod tolerates the
// taint of the walk, because a taint states nothing about the device: it concerns brokers. A
// verdict that is Waiting has no result yet, and a slot is free again some seconds after its Pod.
func requireProbeAgrees(t *testing.T, on map[string]bool) {
	t.Helper()
	began := time.Now()
	var last string
	await(t, fmt.Sprintf("a verdict that a Pod confirms, with the faults %v", slices.Sorted(maps.Keys(on))), func(ctx context.Context) error {
		state, text, err := verdictOn(ctx, "Instance", "default", walkedDevice)
		if err != nil {
			return fmt.Errorf("%w; before: %s", err, last)
		}
		if state == explain.Waiting {
			return fmt.Errorf("no result yet: %s", text)
		}
		got, why, err := probeDevice(ctx)
		if err != nil {
			return fmt.Errorf("%w; before: %s", err, last)
		}

		last = fmt.Sprintf("%s (%s), and a Pod got the device: %t %v", state, text, got, why)
		works := state == explain.Works || state == explain.Partly
		onlyCapacity := slices.Equal(why, []explain.CauseID{explain.CapacityUsed})
		switch {
		case got && works, !got && !works && !onlyCapacity:
			return nil
		case on[slotsInUse] && works && onlyCapacity:
			return nil
		case onlyCapacity:
			return fmt.Errorf("no result yet: %s", last)
		}
		return errors.New(last)
	})
	t.Logf("%v: %s, after %s", slices.Sorted(maps.Keys(on)), last, time.Since(began).Round(time.Second))
}

// probeDevice runs a Pod that requests the device, and deletes it. It returns whether the Pod has
// got the device or, if not, the causes that `kubectl akri explain` states.
func probeDevice(ctx context.Context) (got bool, why []explain.CauseID, err error) {
	const name = "walk-probe"
	pod := strings.Replace(ownPod(name, walkedDevice), "spec:", "spec:\n  tolerations: [{key: walk, operator: Exists}]", 1)
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
	for _, link := range explained.Links {
		for _, cause := range link.Causes {
			if link.State != explain.Works && !slices.Contains(why, cause.ID) {
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

// verdictOn returns the verdict of `kubectl akri explain` on a subject: an Instance, or the brokers
// of a Configuration. The state is empty if the subject does not exist.
func verdictOn(ctx context.Context, subject, namespace, name string) (state explain.State, message string, err error) {
	kind := strings.ToLower(subject)
	if subject == explain.SubjectBrokers {
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
