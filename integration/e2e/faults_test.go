package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"

	"akri.sh/integration/mesh"
)

// fault is something that breaks the installation.
type fault struct {
	name   string
	remove func(context.Context) error
	// afterUpdate is set if only the Pods of an update have the fault.
	afterUpdate bool
	// brokenCluster is what is stated about the Configuration of faults, unless it names another
	// object.
	brokenCluster
}

const faulty = "e2e-faults"

// faults breaks parts of the installation, one after the other. Each is stated wherever it can be,
// and by nothing any more after its end.
func faults(t *testing.T) {
	apply(t, echoConfiguration(faulty, 1, "", "foo0"))
	awaitInstances(t, "default", faulty, faulty+"-8120fe")
	awaitVerdict(t, "default", faulty, akriv0.ConditionDevicesWorking, "Works")
	requireProbe(t)
	for _, f := range slices.Concat(missingObjects(), brokenServices(t), []fault{taintedNode(t)}) {
		t.Run(f.name, func(t *testing.T) {
			if f.afterUpdate && selected.dynamic {
				t.Skip("an update of dra-kubelet-plugin leaves the previous Pods running, and is overdue after five minutes")
			}
			f.check(t)
		})
	}
}

// missingObjects are faults of objects that the charts have created.
func missingObjects() []fault {
	const createAgain = "helm upgrade akri "
	own := func(kind, name string) akriv0.Subject {
		return akriv0.Subject{Kind: kind, Namespace: mesh.Namespace, Name: name}
	}
	definition := func(name string) akriv0.Subject {
		return akriv0.Subject{Kind: explain.SubjectDefinition, Name: name + ".akri.sh"}
	}
	return []fault{
		{name: "Service of the webhook", remove: reinstall, brokenCluster: brokenCluster{
			prepare: deleteOwn("service", "akri-webhook-configuration"),
			cause:   "ObjectMissing", message: "the Service akri-system/akri-webhook-configuration does not exist", remedy: createAgain,
			subject: own("Service", "akri-webhook-configuration"), counted: "service",
		}},
		{name: "ConfigMap of the CA", remove: reinstall, brokenCluster: brokenCluster{
			prepare: deleteOwn("configmap", "akri-ca"),
			cause:   "ObjectMissing", message: "the ConfigMap akri-system/akri-ca does not exist", remedy: createAgain,
			subject: own("ConfigMap", "akri-ca"), counted: "service",
		}},
		{name: "Secret of the CA", remove: reinstall, brokenCluster: brokenCluster{
			prepare: deleteOwn("secret", "akri-ca"),
			cause:   "ObjectMissing", message: "the Secret akri-system/akri-ca does not exist", remedy: createAgain,
			subject: own("Secret", "akri-ca"), deleted: [2]string{"Secret", "akri-ca"},
		}},
		{name: "CustomResourceDefinition of an earlier version", remove: applyDefinitions, brokenCluster: brokenCluster{
			prepare: earlierDefinition,
			cause:   "CRDOutdated", message: "it lacks spec.expectedDevices", remedy: "charts/akri-crds",
			state: explain.Partly, subject: definition("configurations"), counted: "service",
		}},
		{name: "no CustomResourceDefinition of Instances", remove: applyDefinitions, brokenCluster: brokenCluster{
			prepare: kubectl("delete", "customresourcedefinition", "instances.akri.sh"),
			cause:   "CRDOutdated", message: "instances.akri.sh does not exist", remedy: "charts/akri-crds",
			subject: definition("instances"), counted: "service", condition: akriv0.ConditionDevicesWorking,
		}},
	}
}

// brokenServices are faults of services, one of which is caused by a value of the chart.
func brokenServices(t *testing.T) []fault {
	t.Helper()
	handler, host := workloadOf(t, "handler-debug-echo"), workloadOf(t, "device-plugin-host")
	return []fault{
		{name: "no instance-writer", remove: reinstall, brokenCluster: brokenCluster{
			prepare: kubectl("scale", "deployment", "akri-instance-writer", "--replicas=0", "--namespace", mesh.Namespace),
			cause:   "ServiceNotReady", message: "instance-writer is scaled to 0", remedy: "kubectl scale deployment akri-instance-writer",
			subject: workloadOf(t, "instance-writer"), counted: "service", condition: akriv0.ConditionDevicesWorking,
		}},
		{name: "quota in the namespace of Akri", remove: deleteLimits("resourcequota"), brokenCluster: brokenCluster{
			prepare: quota,
			cause:   "PodsNotCreated", message: "exceeded quota: none", remedy: "kubectl describe resourcequota",
			state: explain.Partly, subject: handler, counted: "service",
		}},
		{name: "LimitRange in the namespace of Akri", remove: deleteLimits("limitrange"), brokenCluster: brokenCluster{
			prepare: limits,
			cause:   "PodsNotCreated", message: "maximum memory usage per Container is 1Mi", remedy: "resources.limits.memory=",
			state: explain.Partly, subject: handler, counted: "service",
		}},
		{
			name: "two releases",
			remove: func(ctx context.Context) error {
				return akri.DeleteText(ctx, secondInstallation)
			},
			brokenCluster: brokenCluster{
				prepare: secondRelease,
				cause:   "TwoInstallations", message: "the release other in the namespace e2e-other", remedy: "helm uninstall ",
				state: explain.Partly, subject: workloadOf(t, "instance-writer"),
				asked: "broker-controller may read only the namespaces of its own release",
			},
		},
		{name: "directory of the kubelet", remove: reinstallWith("--set=global.host.kubelet=null"), afterUpdate: true, brokenCluster: brokenCluster{
			prepare: directory,
			cause:   "VolumeNotMounted", message: "/var/lib/no-kubelet", remedy: "global.host.kubelet=",
			state: explain.Partly, subject: host, counted: "service",
		}},
	}
}

// taintedNode is a fault of a node.
func taintedNode(t *testing.T) fault {
	t.Helper()
	node := nodeWithout(t, "broker-controller")
	return fault{
		name: "NoExecute taint",
		remove: func(ctx context.Context) error {
			_, err := akri.Kubectl(ctx, "", "taint", "node", node, "faults=on:NoExecute-")
			return err
		},
		brokenCluster: brokenCluster{
			prepare: kubectl("taint", "node", node, "faults=on:NoExecute"),
			cause:   "NodeWithoutAkri", message: "faults=on:NoExecute", remedy: "global.nodePlane.tolerations=",
			subject: akriv0.Subject{Kind: "Node", Name: node}, counted: "node",
			condition: akriv0.ConditionDevicesWorking, configuration: faulty, conditionState: explain.Partly,
		},
	}
}

// workloadOf returns the workload of Akri that runs the component.
func workloadOf(t *testing.T, component string) akriv0.Subject {
	t.Helper()
	apps := akri.Kubernetes.AppsV1()
	deployments, err := apps.Deployments(mesh.Namespace).List(t.Context(), ofService(component))
	require.NoError(t, err)
	for _, deployment := range deployments.Items {
		return akriv0.Subject{Kind: "Deployment", Namespace: deployment.Namespace, Name: deployment.Name}
	}
	daemonSets, err := apps.DaemonSets(mesh.Namespace).List(t.Context(), ofService(selected.process(component)))
	require.NoError(t, err)
	require.Len(t, daemonSets.Items, 1, component)
	return akriv0.Subject{Kind: "DaemonSet", Namespace: mesh.Namespace, Name: daemonSets.Items[0].Name}
}

// requireProbe checks that `check --probe` states what it runs, asks before it takes the last slot,
// and runs the Pod.
func requireProbe(t *testing.T) {
	t.Helper()
	_, err := kubectlAkri(t.Context(), "check", "--probe="+faulty) // the standard input is empty
	require.ErrorContains(t, err, "for at most 1m0s.\nIt takes the last free slot until it ends.\n")
	require.ErrorContains(t, err, "nothing was changed")
	pods, err := akri.Kubernetes.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return strings.HasPrefix(pod.Name, "akri-probe-") }))

	output, err := kubectlAkri(t.Context(), "check", "--probe="+faulty, "--yes")
	require.NoError(t, err, output)
	require.Contains(t, output, "got it, and ended after")
}

func (f fault) check(t *testing.T) {
	removed := false
	remove := func() {
		if !removed {
			removed = true
			require.NoError(t, f.remove(context.WithoutCancel(t.Context())))
		}
	}
	defer remove()
	f.object = "configuration " + faulty
	f.checkEverywhere(t)

	remove()
	began := time.Now()
	await(t, "a check without "+f.message, func(ctx context.Context) error {
		results, err := checkResults(ctx)
		for _, result := range results {
			if result.Outcome == "Failed" && strings.Contains(result.Message, f.message) {
				return errors.New(result.Message)
			}
		}
		return err
	})
	awaitCount(t, cmp.Or(f.counted, "service"), func(states map[explain.State]int) bool {
		return states[explain.Broken]+states[explain.Partly] == 0
	})
	awaitVerdict(t, "default", faulty, akriv0.ConditionDevicesWorking, "Works")
	t.Logf("works again after %s", time.Since(began).Round(time.Second))
}

// awaitCount waits until the numbers of subjects of a kind that broker-controller counts, by state,
// are accepted.
func awaitCount(t *testing.T, subject string, accepts func(states map[explain.State]int) bool) {
	t.Helper()
	await(t, "the number of subjects "+subject, func(ctx context.Context) error {
		states := map[explain.State]int{}
		err := eachValue(ctx, "broker-controller", "akri_verdicts", func(labels map[string]string, value float64) {
			if labels["subject"] == subject {
				states[explain.State(labels["state"])] += int(value)
			}
		})
		if err == nil && !accepts(states) {
			err = fmt.Errorf("the numbers are %v", states)
		}
		return err
	})
}

// awaitDeleted waits until the metrics of instance-writer show that an object does not exist.
func awaitDeleted(t *testing.T, object [2]string) {
	t.Helper()
	await(t, "a metric of "+strings.Join(object[:], " "), func(ctx context.Context) error {
		exists := true
		err := eachValue(ctx, "instance-writer", "akri_object_exists", func(labels map[string]string, value float64) {
			if labels["kind"] == object[0] && labels["name"] == object[1] {
				exists = value == 1
			}
		})
		if err == nil && exists {
			err = errors.New("it exists")
		}
		return err
	})
}

// eachValue calls f with the values of a gauge in all Pods of a service.
func eachValue(ctx context.Context, service, name string, f func(labels map[string]string, value float64)) error {
	pods, err := akri.Kubernetes.CoreV1().Pods(mesh.Namespace).List(ctx, ofService(service))
	if err == nil && len(pods.Items) == 0 {
		err = errors.New("no Pod of " + service + " exists now")
	}
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		text, err := akri.Metrics(ctx, &pod)
		if err != nil {
			return err
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
		if err != nil {
			return err
		}
		for _, metric := range families[name].GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			f(labels, metric.GetGauge().GetValue())
		}
	}
	return nil
}

// checkResult is a result of `kubectl akri check -o json`.
type checkResult struct {
	Name, Outcome, Message string
	Remedies               []explain.Remedy
}

// checkResults returns the results of `kubectl akri check`, which can have failed.
func checkResults(ctx context.Context) (results []checkResult, err error) {
	text, err := kubectlAkri(ctx, "check", "--output=json")
	if jsonErr := json.Unmarshal([]byte(text), &results); jsonErr != nil {
		return nil, errors.Join(err, jsonErr)
	}
	return results, nil
}

// kubectl returns a function that runs a command of kubectl.
func kubectl(arguments ...string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		_, err := akri.Kubectl(t.Context(), "", arguments...)
		require.NoError(t, err)
	}
}

// deleteOwn deletes an object of the installation.
func deleteOwn(kind, name string) func(*testing.T) {
	return kubectl("delete", kind, name, "--namespace", mesh.Namespace)
}

// reinstall runs the command that the remedies state.
func reinstall(ctx context.Context) error { return reinstallWith()(ctx) }

func reinstallWith(values ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		arguments := []string{"upgrade", mesh.Release, akri.Path("charts", "akri"), "--namespace", mesh.Namespace, "--reset-then-reuse-values", "--wait"}
		_, err := akri.Helm(ctx, append(arguments, values...)...)
		return err
	}
}

// nodeWithout returns a node without a Pod of the service: a new leader of broker-controller counts
// its waits from its own first sight.
func nodeWithout(t *testing.T, service string) string {
	t.Helper()
	for _, node := range akri.Cluster.Nodes() {
		if !hasPod(t, node.Name(), service) {
			return node.Name()
		}
	}
	require.FailNow(t, "each node has a Pod of "+service)
	return ""
}

func hasPod(t *testing.T, node, service string) bool {
	t.Helper()
	return slices.ContainsFunc(servicePods(t, service), func(pod corev1.Pod) bool { return pod.Spec.NodeName == node })
}

// quota refuses new Pods in the namespace of Akri.
func quota(t *testing.T) {
	apply(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none, namespace: "+mesh.Namespace+"}, spec: {hard: {pods: 0}}}")
	deleteHandlerPod(t)
}

// limits refuses new Pods with more memory than a Pod of Akri needs.
func limits(t *testing.T) {
	apply(t, "{apiVersion: v1, kind: LimitRange, metadata: {name: none, namespace: "+mesh.Namespace+"}, "+
		"spec: {limits: [{type: Container, max: {memory: 1Mi}}]}}")
	deleteHandlerPod(t)
}

func deleteHandlerPod(t *testing.T) {
	t.Helper()
	pod := servicePodOn(t, selected.process("handler-debug-echo"), akri.Cluster.Nodes()[1].Name())
	require.NoError(t, akri.Kubernetes.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
}

func deleteLimits(resource string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := akri.Kubectl(ctx, "", "delete", resource, "none", "--namespace", mesh.Namespace)
		return err
	}
}

// secondInstallation is the instance-writer of another release, without Pods: the cluster cannot
// run two.
const secondInstallation = `
apiVersion: v1
kind: Namespace
metadata: {name: e2e-other}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: akri-instance-writer
  namespace: e2e-other
  labels: &labels {app.kubernetes.io/part-of: akri, app.kubernetes.io/component: instance-writer, app.kubernetes.io/instance: other}
spec:
  replicas: 0
  selector: {matchLabels: *labels}
  template: {metadata: {labels: *labels}, spec: {containers: [{name: instance-writer, image: "ghcr.io/akri-mesh/instance-writer:dev"}]}}
`

func secondRelease(t *testing.T) { require.NoError(t, akri.ApplyText(t.Context(), secondInstallation)) }

// directory sets a directory of the kubelet that does not exist.
func directory(t *testing.T) {
	_, err := akri.Helm(t.Context(), "upgrade", mesh.Release, akri.Path("charts", "akri"), "--namespace", mesh.Namespace, "--reset-then-reuse-values",
		"--set=global.host.kubelet=/var/lib/no-kubelet")
	require.NoError(t, err)
}

// earlierDefinition removes a field of Configurations from their CustomResourceDefinition, as after
// `helm upgrade`, which does not change them.
func earlierDefinition(t *testing.T) {
	kubectl("patch", "customresourcedefinition", "configurations.akri.sh", "--type=json", "--patch",
		`[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/expectedDevices"}]`)(t)
}

// applyDefinitions applies the CustomResourceDefinitions of the chart.
func applyDefinitions(ctx context.Context) error {
	files, err := filepath.Glob(akri.Path("charts", "akri", "crds", "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := akri.Kubectl(ctx, string(text), "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
			return err
		}
	}
	return nil
}
