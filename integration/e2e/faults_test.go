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

	"akri.sh/integration/mesh"
)

// fault is something that breaks the installation, and where it is stated without a question.
type fault struct {
	name   string
	inject func(*testing.T)
	remove func(context.Context) error
	// cause and message are what `kubectl akri explain` and `check` state about the Configuration
	// of faults.
	cause, message string
	// remedy is a part of a command that explain names.
	remedy string
	// subject is the kind of subject that broker-controller counts as broken, from which an alert
	// follows.
	subject string
	// deleted is the kind and name of an object that broker-controller may not read. The metrics of
	// instance-writer state that it does not exist. Without both, only the command line finds the
	// fault.
	deleted [2]string
	// condition is the condition of the Configuration that states the cause, if it affects devices.
	condition string
}

const faulty = "e2e-faults"

// faults breaks parts of the installation, one after the other. Each is stated by the metrics, by
// `explain`, by `check` and by the console, and by nothing any more after its end.
func faults(t *testing.T) {
	apply(t, echoConfiguration(faulty, 1, "", "foo0"))
	awaitInstances(t, "default", faulty, faulty+"-8120fe")
	awaitVerdict(t, "default", faulty, akriv0.ConditionDevicesWorking, "Works")
	requireProbe(t)
	var tainted string
	for _, f := range []fault{
		{
			name: "Service of the webhook", inject: deleteOwn("service", "akri-webhook-configuration"), remove: reinstall,
			cause: "ObjectMissing", message: "the Service akri-system/akri-webhook-configuration does not exist", subject: "service",
		},
		{
			name: "ConfigMap of the CA", inject: deleteOwn("configmap", "akri-ca"), remove: reinstall,
			cause: "ObjectMissing", message: "the ConfigMap akri-system/akri-ca does not exist", subject: "service",
		},
		{
			name: "Secret of the CA", inject: deleteOwn("secret", "akri-ca"), remove: reinstall,
			cause: "ObjectMissing", message: "the Secret akri-system/akri-ca does not exist", deleted: [2]string{"Secret", "akri-ca"},
		},
		{
			name: "no instance-writer", inject: kubectl("scale", "deployment", "akri-instance-writer", "--replicas=0", "--namespace", mesh.Namespace),
			remove: reinstall,
			cause:  "ServiceNotReady", message: "instance-writer", subject: "service", condition: akriv0.ConditionDevicesWorking,
		},
		{
			name: "CustomResourceDefinition of an earlier version", inject: earlierDefinition, remove: applyDefinitions,
			cause: "CRDOutdated", message: "it lacks spec.expectedDevices", subject: "service",
		},
		{
			name: "no CustomResourceDefinition of Instances", inject: kubectl("delete", "customresourcedefinition", "instances.akri.sh"),
			remove: applyDefinitions,
			cause:  "CRDOutdated", message: "instances.akri.sh does not exist", subject: "service", condition: akriv0.ConditionDevicesWorking,
		},
		{
			name: "quota in the namespace of Akri", inject: quota, remove: deleteLimits("resourcequota"),
			cause: "PodsNotCreated", message: "exceeded quota: none", subject: "service",
		},
		{
			name: "LimitRange in the namespace of Akri", inject: limits, remove: deleteLimits("limitrange"),
			cause: "PodsNotCreated", message: "maximum memory usage per Container is 1Mi", subject: "service",
		},
		{
			name: "two releases", inject: secondRelease, remove: func(ctx context.Context) error {
				return akri.DeleteText(ctx, secondInstallation)
			},
			cause: "TwoInstallations", message: "the release other in the namespace e2e-other",
		},
		{
			name: "NoExecute taint", inject: func(t *testing.T) {
				tainted = nodeWithout(t, "broker-controller")
				kubectl("taint", "node", tainted, "faults=on:NoExecute")(t)
			},
			remove: func(ctx context.Context) error {
				_, err := akri.Kubectl(ctx, "", "taint", "node", tainted, "faults=on:NoExecute-")
				return err
			},
			cause: "NodeWithoutAkri", message: "faults=on:NoExecute", subject: "node", condition: akriv0.ConditionDevicesWorking,
		},
		{
			name: "directory of the kubelet", inject: directory, remove: reinstallWith("--set=global.host.kubelet=null"),
			cause: "VolumeNotMounted", message: "/var/lib/no-kubelet", remedy: "global.host.kubelet", subject: "service",
		},
	} {
		t.Run(f.name, f.check)
	}
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
	f.inject(t)
	began := time.Now()
	switch {
	case f.subject != "":
		awaitCount(t, f.subject, func(broken int) bool { return broken > 0 })
	case f.deleted[0] != "":
		awaitDeleted(t, f.deleted)
	}
	recordVerdict(t, "metrics of "+f.cause, time.Since(began))
	broken := brokenCluster{
		object: "configuration " + faulty, cause: f.cause, message: f.message, remedy: f.remedy, condition: f.condition, began: began,
	}
	broken.check(t)
	requireFailedCheck(t, f.message)
	awaitPage(t, "/problems", f.cause+": ", f.message)

	remove()
	began = time.Now()
	await(t, "a check without "+f.message, func(ctx context.Context) error {
		if message, failed := failedCheck(ctx, f.message); failed {
			return errors.New(message)
		}
		return nil
	})
	awaitCount(t, cmp.Or(f.subject, "service"), func(broken int) bool { return broken == 0 })
	awaitVerdict(t, "default", faulty, akriv0.ConditionDevicesWorking, "Works")
	t.Logf("works again after %s", time.Since(began).Round(time.Second))
}

// awaitCount waits until broker-controller counts a number of subjects of a kind that are Broken or
// work in part.
func awaitCount(t *testing.T, subject string, check func(broken int) bool) {
	t.Helper()
	await(t, "the number of subjects "+subject, func(ctx context.Context) error {
		broken := 0
		err := eachValue(ctx, "broker-controller", "akri_verdicts", func(labels map[string]string, value float64) {
			if labels["subject"] == subject && (labels["state"] == "Broken" || labels["state"] == "Partly") {
				broken += int(value)
			}
		})
		if err == nil && !check(broken) {
			err = fmt.Errorf("%d subjects %s do not work", broken, subject)
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

func requireFailedCheck(t *testing.T, message string) {
	t.Helper()
	text, failed := failedCheck(t.Context(), message)
	require.True(t, failed, text)
}

// failedCheck reports whether a result of `kubectl akri check` has failed with the message.
func failedCheck(ctx context.Context, message string) (text string, failed bool) {
	text, err := kubectlAkri(ctx, "check", "--output=json")
	var results []struct{ Name, Outcome, Message string }
	if jsonErr := json.Unmarshal([]byte(text), &results); jsonErr != nil {
		return errors.Join(err, jsonErr).Error(), true
	}
	for _, result := range results {
		if result.Outcome == "Failed" && strings.Contains(result.Message, message) {
			return result.Message, true
		}
	}
	return text, false
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
	pods := servicePods(t, service)
	for _, node := range akri.Cluster.Nodes() {
		if !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName == node.Name() }) {
			return node.Name()
		}
	}
	require.FailNow(t, "each node has a Pod of "+service)
	return ""
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
