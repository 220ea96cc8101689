package e2e_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/mesh"
)

// recordVerdict appends the time until a cause was stated to the file AKRI_E2E_VERDICTS, which
// `make test` prints: go prints no logs of tests that pass.
func recordVerdict(t *testing.T, cause string, took time.Duration) {
	t.Helper()
	t.Logf("%s is stated after %s", cause, took.Round(time.Second))
	path := os.Getenv("AKRI_E2E_VERDICTS")
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	_, err = fmt.Fprintf(file, "%3.0f s  %s: %s\n", took.Seconds(), t.Name(), cause)
	require.NoError(t, errors.Join(err, file.Close()))
}

// kubectlAkri runs kubectl with the plugin that `make kubectl-akri` builds.
func kubectlAkri(ctx context.Context, arguments ...string) (string, error) {
	command := akriCommand(ctx, arguments...)
	var stderr strings.Builder
	command.Stderr = &stderr
	text, err := command.Output()
	if err != nil {
		return string(text), fmt.Errorf("kubectl akri %s: %w: %s", strings.Join(arguments, " "), err, stderr.String())
	}
	return string(text), nil
}

func akriCommand(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(akri.Bin(), "kubectl"), append([]string{"akri"}, arguments...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+akri.Cluster.Kubeconfig(), "PATH="+akri.Path("bin")+":"+os.Getenv("PATH"))
	return command
}

// why is the name of a Configuration and its broken condition.
func why(name, configuration, condition, reason string) func(*testing.T) {
	return func(t *testing.T) {
		apply(t, configuration)
		awaitCondition(t, "default", name, condition, metav1.ConditionFalse, reason)
	}
}

const whySecret = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: why-secret, namespace: default}
spec:
  discoveryHandler:
    name: debugEcho
    discoveryDetails: 'descriptions: [foo0]'
    discoveryProperties:
      - {name: password, valueFrom: {secretKeyRef: {name: why-login, key: password}}}
`

// inNamespace moves a Configuration to a namespace that it creates.
func inNamespace(namespace, configuration, labels string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}\n---", namespace, labels) +
		strings.Replace(configuration, "namespace: default", "namespace: "+namespace, 1)
}

// whyWebhook refuses all Pods of a namespace: it is the webhook of Akri, which accepts only
// Configurations. An API server calls a new webhook some time after it was created.
func whyWebhook(t *testing.T) {
	own, err := akri.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "akri-webhook-configuration", metav1.GetOptions{})
	require.NoError(t, err)
	apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: why-webhook}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: why-webhook}
webhooks:
- name: why.akri.sh
  clientConfig:
    service: {name: akri-webhook-configuration, namespace: %s, path: /validate}
    caBundle: %s
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: why-webhook}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`, mesh.Namespace, base64.StdEncoding.EncodeToString(own.Webhooks[0].ClientConfig.CABundle)))
	await(t, "a refused Pod", func(ctx context.Context) error {
		_, err := akri.Kubectl(ctx, "", "run", "refused", "--image=none", "--namespace=why-webhook", "--dry-run=server")
		if err == nil || !strings.Contains(err.Error(), "spec.containers: Forbidden") {
			return fmt.Errorf("the webhook does not refuse: %w", cmp.Or(err, errors.New("the Pod is accepted")))
		}
		return nil
	})
	apply(t, strings.Replace(echoConfiguration("why-webhook", 1, broker, "foo0"), "namespace: default", "namespace: why-webhook", 1))
	awaitCondition(t, "why-webhook", "why-webhook", akriv0.ConditionBrokersRunning, metav1.ConditionFalse, akriv0.ReasonBrokerRefused)
}

// whySecurity runs a broker in a namespace that does not allow it.
func whySecurity(t *testing.T) {
	apply(t, inNamespace("why-security", echoConfiguration("why-security", 1, broker, "foo0"), "pod-security.kubernetes.io/enforce: restricted"))
	awaitCondition(t, "why-security", "why-security", akriv0.ConditionBrokersRunning, metav1.ConditionFalse, akriv0.ReasonBrokerRefused)
}

// whyRefused runs a broker with a memory limit in a namespace with a quota or limits that refuse
// it.
func whyRefused(name, kind, spec string) func(*testing.T) {
	return func(t *testing.T) {
		apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}\n---\n"+
			"{apiVersion: v1, kind: %s, metadata: {name: %s, namespace: %s}, spec: %s}", name, kind, name, name, spec))
		limited := strings.Replace(broker, "limits: {", "limits: {memory: 64Mi, ", 1)
		apply(t, strings.Replace(echoConfiguration(name, 1, limited, "foo0"), "namespace: default", "namespace: "+name, 1))
		awaitCondition(t, name, name, akriv0.ConditionBrokersRunning, metav1.ConditionFalse, akriv0.ReasonBrokerRefused)
	}
}

func whyOffline(t *testing.T) {
	node := akri.Cluster.Nodes()[0]
	apply(t, configurationOf("why-offline", "whyOffline", ""))
	handler := handle(t, node, "whyOffline", &discoveryv0.Device{Id: "x"})
	awaitInstances(t, "default", "why-offline", instanceName("why-offline", "x", "", true))
	handler.stop()
	awaitCondition(t, "default", "why-offline", akriv0.ConditionHandlerRegistered, metav1.ConditionFalse, akriv0.ReasonHandlerOffline)
}

// whyCollision uses a name that leaves no room for the longer digest.
var whyCollisionName = "why-" + strings.Repeat("collision-", 5) + "x"

func whyCollision(t *testing.T) {
	first, second := collision()
	why(whyCollisionName, echoConfiguration(whyCollisionName, 1, "", first, second), akriv0.ConditionDevicesAccepted, akriv0.ReasonDigestCollision)(t)
}

// whyFull runs a Pod that holds the only slot of a device.
func whyFull(name string) func(*testing.T) {
	return func(t *testing.T) {
		apply(t, echoConfiguration(name, 1, "", "foo0"))
		awaitTotalAllocatable(t, name+"-8120fe", 2)
		apply(t, ownPod(name+"-holder", name+"-8120fe"))
		awaitReadyPod(t, "default", name+"-holder")
	}
}

// whyUsedUp starts a Pod after the status of the nodes shows that another one holds the only slot.
// Before, the kubelet can refuse the Pod.
func whyUsedUp(t *testing.T) {
	whyFull("why-full")(t)
	awaitTotalAllocatable(t, "why-full-8120fe", 1)
	whyUnschedulable("why-full", "why-full-8120fe")(t)
}

// unschedulable reports whether the scheduler has found no node for the Pod.
func unschedulable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable })
}

func whyUnschedulable(pod, resource string) func(*testing.T) {
	return func(t *testing.T) {
		apply(t, ownPod(pod, resource))
		awaitPod(t, pod, "an unschedulable Pod", unschedulable)
	}
}

// whyLate places a Pod on a node whose slots are held, as the scheduler does with an outdated
// status of the node.
func whyLate(t *testing.T) {
	onlyDevicePlugins(t, "the kubelet refuses a Pod")
	whyFull("why-late")(t)
	apply(t, onNode(akri.Cluster.Nodes()[1], ownPod("why-late", "why-late-8120fe")))
	awaitPod(t, "why-late", "a rejected Pod", func(pod *corev1.Pod) bool { return pod.Status.Reason == "UnexpectedAdmissionError" })
}

func whyTaken(t *testing.T) {
	apply(t, echoConfiguration("why-taken", 1, "", "foo0"))
	awaitInstances(t, "default", "why-taken", "why-taken-8120fe")
	apply(t, inNamespace("why-taken", echoConfiguration("why-taken", 1, "", "foo0"), ""))
	awaitCondition(t, "why-taken", "why-taken", akriv0.ConditionDevicesAccepted, metav1.ConditionFalse, akriv0.ReasonNameTaken)
}

// whyThree requests more slots than a device has.
func whyThree(t *testing.T) {
	apply(t, echoConfiguration("why-three", 2, "", "foo0"))
	awaitInstances(t, "default", "why-three", "why-three-8120fe")
	apply(t, strings.Replace(ownPod("why-three", "why-three-8120fe"), `"1"`, `"3"`, 1))
	awaitPod(t, "why-three", "an unschedulable Pod", unschedulable)
}

// whyElsewhere creates a Pod with the name of a node that does not see the device. The kubelet runs
// it, because it ignores extended resources that its node does not have.
func whyElsewhere(t *testing.T) {
	onlyDevicePlugins(t, "the kubelet runs a Pod")
	allowed := "spec:\n  nodes: {names: [" + akri.Cluster.Nodes()[0].Name() + "]}"
	apply(t, strings.Replace(echoConfiguration("why-elsewhere", 1, "", "foo0"), "spec:", allowed, 1))
	awaitInstances(t, "default", "why-elsewhere", "why-elsewhere-8120fe")
	apply(t, onNode(akri.Cluster.Nodes()[1], ownPod("why-elsewhere", "why-elsewhere-8120fe")))
	awaitReadyPod(t, "default", "why-elsewhere")
}

// whyFinalizer deletes an object that a finalizer keeps: the Instance of a Configuration, or a Pod
// with its device.
func whyFinalizer(resource, name, configuration string) func(*testing.T) {
	return func(t *testing.T) {
		apply(t, echoConfiguration(configuration, 1, "", "foo0"))
		awaitInstances(t, "default", configuration, configuration+"-8120fe")
		if resource == "pod" {
			apply(t, ownPod(name, configuration+"-8120fe"))
			awaitReadyPod(t, "default", name)
		}
		patch := func(ctx context.Context, finalizers string) {
			_, err := akri.Kubectl(ctx, "", "patch", resource, name, "--type=merge", "--patch", `{"metadata":{"finalizers":`+finalizers+`}}`)
			require.NoError(t, err)
		}
		patch(t.Context(), `["example.com/why"]`)
		t.Cleanup(func() { patch(context.WithoutCancel(t.Context()), "null") })
		_, err := akri.Kubectl(t.Context(), "", "delete", resource, name, "--wait=false")
		require.NoError(t, err)
	}
}

// explainedCauses prepares broken clusters, and checks that explain names the cause and the remedy.
func explainedCauses(t *testing.T) {
	missingImage := strings.Replace(broker, "ghcr.io/akri-mesh/sample-broker", "localhost:1/none", 1)
	for _, broken := range []brokenCluster{
		// Handlers and their details.
		{
			prepare: why("why-handler", configurationOf("why-handler", "udve", ""), akriv0.ConditionHandlerRegistered, akriv0.ReasonHandlerNotRegistered),
			object:  "configuration why-handler",
			cause:   "NoSuchHandler", message: `"udve"`, remedy: `{"name":"udev"}`,
			condition: akriv0.ConditionDevicesWorking,
		},
		{
			prepare: whyOffline,
			object:  "configuration why-offline",
			cause:   "HandlerOffline", message: "cannot be reached", remedy: "kubectl get pods",
			state:     explain.Partly, // it is offline on one node
			condition: akriv0.ConditionDevicesWorking,
		},
		{
			prepare: why("why-details", configurationOf("why-details", "udev", "udevRuels: []"), akriv0.ConditionDetailsAccepted, akriv0.ReasonInvalidDetails),
			object:  "configuration why-details",
			cause:   "DetailsRefused", message: "udevRuels", remedy: "kubectl edit configuration.akri.sh why-details",
			condition: akriv0.ConditionDevicesWorking,
		},
		{
			prepare: why("why-nothing", configurationOf("why-nothing", "udev", `udevRules: ['KERNEL=="why"']`), akriv0.ConditionDevicesFound, akriv0.ReasonNothingMatched),
			object:  "configuration why-nothing",
			cause:   "NothingMatched", message: "no device matches on node-", remedy: "discoveryDetails",
			state:     explain.NoneFound,
			condition: akriv0.ConditionDevicesWorking,
		},
		{
			prepare: why("why-expected", strings.Replace(configurationOf("why-expected", "udev", `udevRules: ['KERNEL=="why"']`), "spec:", "spec:\n  expectedDevices: 1", 1),
				akriv0.ConditionDevicesFound, akriv0.ReasonNothingMatched),
			object: "configuration why-expected",
			cause:  "NothingMatched", message: "no device matches on node-", remedy: "discoveryDetails",
			condition: akriv0.ConditionDevicesWorking,
		},
		{
			prepare: why("why-secret", whySecret, akriv0.ConditionDetailsAccepted, akriv0.ReasonPropertyForbidden),
			object:  "configuration why-secret",
			cause:   "SecretRightMissing", message: "why-login", remedy: "kubectl create rolebinding",
			condition: akriv0.ConditionDevicesWorking,
		},
		{
			prepare: why("why-key", configurationOf("why-key", "udev", `udevRules: ['KERNL=="zram*"']`), akriv0.ConditionDetailsAccepted, akriv0.ReasonInvalidDetails),
			object:  "configuration why-key",
			cause:   "DetailsRefused", message: "KERNL", remedy: "kubectl edit configuration.akri.sh why-key",
			condition: akriv0.ConditionDevicesWorking,
		},

		// Names.
		{
			prepare: whyCollision,
			object:  "configuration " + whyCollisionName,
			cause:   "DigestCollision", message: "at most 49 characters", remedy: "kubectl delete configuration.akri.sh",
			state:     explain.Partly, // one of two devices
			condition: akriv0.ConditionDevicesWorking,
		},
		{
			prepare: whyTaken,
			object:  "configuration why-taken --namespace=why-taken",
			cause:   "NameTaken", message: "the name belongs to another Configuration or namespace", remedy: "kubectl patch configmap akri-names",
			condition: akriv0.ConditionDevicesWorking,
		},

		// Slots.
		{
			prepare: whyUsedUp,
			object:  "pod why-full",
			cause:   "CapacityUsed", message: "default/why-full-holder", remedy: "kubectl patch configuration.akri.sh why-full",
			state: explain.Waiting,
			asked: podOfUser,
		},
		{
			prepare: whyUnschedulable("why-typo", "why-no-such-device"),
			object:  "pod why-typo",
			cause:   "ResourceUnknown", message: "why-no-such-device", remedy: "kubectl akri devices",
			asked: podOfUser,
		},
		{
			prepare: whyLate,
			object:  "pod why-late",
			cause:   "OutdatedNodeStatus", message: "no free slot", remedy: "kubectl delete pod why-late",
			asked: podOfUser,
		},
		{
			prepare: whyThree,
			object:  "pod why-three",
			cause:   "TooManyRequested", message: "requests 3 of akri.sh/why-three-8120fe, and no node has more than 2 slots", remedy: "kubectl akri devices",
			asked: podOfUser,
		},
		{
			prepare: whyElsewhere,
			object:  "pod why-elsewhere",
			cause:   "NodeWithoutDevice", message: "does not see akri.sh/why-elsewhere-8120fe", remedy: "kubectl delete pod why-elsewhere",
			asked: podOfUser,
		},

		// Deleted objects that others keep.
		{
			prepare: whyFinalizer("instance.akri.sh", "why-finalizer-8120fe", "why-finalizer"),
			object:  "instance why-finalizer-8120fe",
			cause:   "Terminating", message: "these finalizers keep it: example.com/why", remedy: "kubectl patch instance.akri.sh why-finalizer-8120fe",
			condition: akriv0.ConditionDevicesWorking, configuration: "why-finalizer",
		},
		{
			prepare: whyFinalizer("pod", "why-pod", "why-terminating"),
			object:  "pod why-pod",
			cause:   "Terminating", message: "these finalizers keep it: example.com/why", remedy: "kubectl patch pod why-pod",
			asked: podOfUser,
		},

		// Brokers.
		{
			prepare: why("why-image", echoConfiguration("why-image", 1, missingImage, "foo0"), akriv0.ConditionBrokersRunning, "ErrImagePull"),
			object:  "configuration why-image",
			cause:   "ImageNotPulled", message: "localhost:1/none", remedy: "kubectl edit configuration.akri.sh why-image",
			condition: akriv0.ConditionBrokersWorking,
		},
		{
			prepare: whySecurity,
			object:  "configuration why-security --namespace=why-security",
			cause:   "PodSecurity", message: "violates PodSecurity", remedy: "kubectl label namespace why-security",
			condition: akriv0.ConditionBrokersWorking,
		},
		{
			prepare: whyRefused("why-quota", "ResourceQuota", "{hard: {pods: 0}}"),
			object:  "configuration why-quota --namespace=why-quota",
			cause:   "QuotaExceeded", message: "exceeded quota: why-quota", remedy: "kubectl describe resourcequota --namespace why-quota",
			condition: akriv0.ConditionBrokersWorking,
		},
		{
			prepare: whyRefused("why-limits", "LimitRange", "{limits: [{type: Container, max: {memory: 1Mi}}]}"),
			object:  "configuration why-limits --namespace=why-limits",
			cause:   "BrokerRefused", message: "maximum memory usage per Container is 1Mi", remedy: "kubectl describe limitrange --namespace why-limits",
			condition: akriv0.ConditionBrokersWorking,
		},
		{
			prepare: whyWebhook,
			object:  "configuration why-webhook --namespace=why-webhook",
			cause:   "WebhookRefused", message: "why.akri.sh", remedy: "kubectl get mutatingwebhookconfigurations",
			condition: akriv0.ConditionBrokersWorking,
		},
	} {
		t.Run(strings.Fields(broken.object)[1], func(t *testing.T) {
			t.Parallel()
			broken.checkEverywhere(t)
		})
	}
}

// explainedInstallation breaks parts of the installation, one after the other.
func explainedInstallation(t *testing.T) {
	apply(t, echoConfiguration("why-works", 1, "", "foo0"))
	awaitInstances(t, "default", "why-works", "why-works-8120fe")
	controller := []string{"deployment/akri-controller-deployment", "--namespace", mesh.Namespace}
	kubectl := func(ctx context.Context, arguments ...string) {
		_, err := akri.Kubectl(ctx, "", append(arguments, controller...)...)
		require.NoError(t, err)
	}
	awaitVerdict(t, "default", "why-works", akriv0.ConditionDevicesWorking, "Works")
	output, err := kubectlAkri(t.Context(), "check")
	require.NoError(t, err, output)
	require.Contains(t, output, "the API server checks them")
	require.Contains(t, output, "lets no kubelet set")
	require.NotContains(t, output, "not checked")
	output, err = kubectlAkri(t.Context(), "check", "--as=guest", "--as-group=system:authenticated")
	require.NoError(t, err, output)
	require.Contains(t, output, "not checked: you may not get configmaps, validatingadmissionpolicies, validatingadmissionpolicybindings")
	for _, broken := range []brokenCluster{
		{
			prepare: func(t *testing.T) { apply(t, whyTainted) },
			object:  "configuration why-works",
			cause:   "NodeWithoutAkri", message: "why=gpu:NoSchedule", remedy: "kubectl taint node why-tainted why=gpu:NoSchedule-",
		},
		{
			prepare: func(t *testing.T) {
				t.Cleanup(func() {
					kubectl(context.WithoutCancel(t.Context()), "rollout", "undo")
					kubectl(context.WithoutCancel(t.Context()), "rollout", "status", "--timeout=1m")
				})
				image := append([]string{"set", "image"}, append(controller, "broker-controller=localhost:1/broker-controller:v0.0.1")...)
				_, err := akri.Kubectl(t.Context(), "", image...)
				require.NoError(t, err)
			},
			object: "configuration why-works",
			cause:  "VersionSkew", message: "v0.0.1: broker-controller", remedy: "kubectl rollout status",
		},
		{
			prepare: func(t *testing.T) {
				t.Cleanup(func() {
					kubectl(context.WithoutCancel(t.Context()), "scale", "--replicas=1")
					kubectl(context.WithoutCancel(t.Context()), "rollout", "status", "--timeout=1m")
					require.NoError(t, akri.AwaitWebhook(context.WithoutCancel(t.Context())))
				})
				awaitRequiredWebhook(t)
				kubectl(t.Context(), "scale", "--replicas=0")
				_, err := kubectlAkri(t.Context(), "check")
				require.ErrorContains(t, err, "a check has failed")
			},
			object: "configuration why-new",
			cause:  "WebhookUnavailable", message: "refuses new", remedy: "kubectl scale deployment akri-controller-deployment",
		},
	} {
		t.Run(broken.cause, func(t *testing.T) { broken.check(t) })
	}
	inOrder(t, forgottenNode)
}

// awaitRequiredWebhook waits until the API server refuses Configurations without the webhook. A
// registration does not require the webhook in its first seconds.
func awaitRequiredWebhook(t *testing.T) {
	t.Helper()
	registrations := akri.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	const name = "akri-webhook-configuration"
	awaitObject(t, "failurePolicy Fail", registrations, name, func(registration *admissionregistrationv1.ValidatingWebhookConfiguration) error {
		if len(registration.Webhooks) == 0 || *registration.Webhooks[0].FailurePolicy != admissionregistrationv1.Fail {
			return fmt.Errorf("the webhooks are %+v", registration.Webhooks)
		}
		return nil
	})
}

const whyTainted = "{apiVersion: v1, kind: Node, metadata: {name: why-tainted}, spec: {taints: [{key: why, value: gpu, effect: NoSchedule}]}}"

// forgottenNode forgets a node on which Akri does not run, although an Instance lists it.
func forgottenNode(t *testing.T) {
	apply(t, whyTainted)
	nodes := []string{akri.Cluster.Nodes()[0].Name(), akri.Cluster.Nodes()[1].Name()}
	name := instanceName("why-works", "foo0", "", true)
	edit := fmt.Sprintf(`{"spec":{"nodes":[%q,%q,"why-tainted"],"deviceUsage":{%q:"why-tainted"}}}`,
		nodes[0], nodes[1], akriv0.SlotName(name, 0))
	_, err := akri.Kubectl(t.Context(), "", "patch", "instance.akri.sh", name, "--type=merge", "--patch="+edit)
	require.NoError(t, err)
	_, err = kubectlAkri(t.Context(), "forget", nodes[0], "--yes")
	require.ErrorContains(t, err, "Akri still runs on "+nodes[0])
	_, err = kubectlAkri(t.Context(), "forget", "why-tainted") // the standard input is empty
	require.ErrorContains(t, err, "nothing was changed")
	await(t, "forgotten node", func(ctx context.Context) error {
		output, err := kubectlAkri(ctx, "forget", "why-tainted", "--yes")
		if err != nil || !strings.Contains(output, "No Instance lists the node") {
			return fmt.Errorf("%w: %s", cmp.Or(err, errors.New("the node is listed")), output)
		}
		return nil
	})
	awaitInstance(t, name, "to have a free slot", func(instance *akriv0.Instance) error {
		if instance.Status.SlotsFree != 1 || !slices.Equal(instance.Spec.Nodes, nodes) {
			return fmt.Errorf("spec %+v, status %+v", instance.Spec, instance.Status)
		}
		return nil
	})
}

const whyReport = `
apiVersion: v1
kind: Secret
metadata: {name: why-report, namespace: default}
stringData: {password: why-secret-hunter22}
---
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: why-report, namespace: default}
spec:
  discoveryHandler:
    name: debugEcho
    discoveryDetails: 'descriptions: [foo0]'
    discoveryProperties:
      - {name: password, value: why-property-hunter22}
      - {name: other, valueFrom: {secretKeyRef: {name: why-report, key: password, optional: true}}}
  brokerProperties: {LOGIN_TOKEN: why-broker-hunter22}
`

// reportedProblem checks that an archive for a report has the objects and logs of Akri and no
// secret, and that the other commands list the device.
func reportedProblem(t *testing.T) {
	apply(t, whyReport)
	configurations := akri.Configurations.In("default")
	awaitObject(t, "the conditions of why-report", configurations, "why-report", func(c *akriv0.Configuration) error {
		if len(c.Status.Conditions) == 0 {
			return errors.New("no conditions")
		}
		return nil
	})
	archive, err := kubectlAkri(t.Context(), "bundle", "--file=-")
	require.NoError(t, err)
	text := unpack(t, archive)
	require.NotContains(t, text, "hunter22")
	for _, part := range []string{
		"name: why-report", "LOGIN_TOKEN: MASKED", "akri-instance-writer", fmt.Sprintf(`"service":%q`, selected.process("discovery-operator")), "Configuration default/why-report",
	} {
		require.Contains(t, text, part)
	}

	name := instanceName("e2e-report", "foo0", "", true)
	apply(t, echoConfiguration("e2e-report", 2, "", "foo0"))
	awaitInstances(t, "default", "e2e-report", name)
	for command, part := range map[string]string{
		"devices --namespace=default":     name,
		"slots --all-namespaces":          akriv0.SlotName(name, 1),
		"handlers":                        "default/e2e-report",
		"status":                          "e2e-report",
		"status --as=why-no-rights":       "You may not list: configurations, daemonsets, deployments, instances, jobs, nodes, pods",
		"__complete explain instance e2e": name,
	} {
		await(t, "output of "+command, func(ctx context.Context) error {
			output, err := kubectlAkri(ctx, strings.Fields(command)...)
			if err == nil && !strings.Contains(output, part) {
				err = fmt.Errorf("the output has no %q: %s", part, output)
			}
			return err
		})
	}
}

// unpack returns the text of all files of a compressed archive.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	uncompressed, err := gzip.NewReader(strings.NewReader(archive))
	require.NoError(t, err)
	text, err := io.ReadAll(uncompressed)
	require.NoError(t, err)
	return string(text)
}

// watchedDevice checks that watch shows a device that comes and goes.
func watchedDevice(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	command := akriCommand(ctx, "watch", "--namespace=default")
	output, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	lines := bufio.NewScanner(output)
	next := func(sign string) {
		for lines.Scan() {
			if fields := strings.Fields(lines.Text()); fields[1] == sign && fields[2] == "default/"+instanceName("e2e-watch", "foo0", "", true) {
				return
			}
		}
		require.FailNow(t, "no line with "+sign)
	}
	manifest := echoConfiguration("e2e-watch", 1, "", "foo0")
	apply(t, manifest)
	next("+")
	require.NoError(t, akri.DeleteText(t.Context(), manifest))
	next("-")
	require.NoError(t, command.Process.Signal(os.Interrupt))
	require.NoError(t, command.Wait())
}
