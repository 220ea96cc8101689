package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/mesh"
)

// explanation is the output of `kubectl akri explain -o json`.
type explanation struct {
	Links []struct {
		State  string
		Causes []cause
	}
}

type cause struct {
	ID, Message string
	Remedies    []struct{ Text, Command string }
}

// cause returns the cause with the id, which must be that of the first broken link, or that of a
// link that works in part if none is broken.
func (e explanation) cause(id string) (cause, error) {
	var ids []string
	for _, state := range []string{"Broken", "Partial"} {
		for _, link := range e.Links {
			if link.State != state {
				continue
			}
			for _, c := range link.Causes {
				if c.ID == id {
					return c, nil
				}
				ids = append(ids, c.ID)
			}
			if state == "Broken" {
				return cause{}, fmt.Errorf("the causes are %v", ids)
			}
		}
	}
	return cause{}, fmt.Errorf("the causes are %v", ids)
}

// kubectlAkri runs kubectl with the plugin that `make kubectl-akri` builds.
func kubectlAkri(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(akri.Bin(), "kubectl"), append([]string{"akri"}, arguments...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+akri.Cluster.Kubeconfig(), "PATH="+akri.Path("bin")+":"+os.Getenv("PATH"))
	var stderr strings.Builder
	command.Stderr = &stderr
	text, err := command.Output()
	if err != nil {
		return string(text), fmt.Errorf("kubectl akri %s: %w: %s", strings.Join(arguments, " "), err, stderr.String())
	}
	return string(text), nil
}

// brokenCluster is a state of the cluster and its explanation.
type brokenCluster struct {
	name    string
	prepare func(*testing.T)
	// object is the kind, the name and, optionally, flags.
	object string
	cause  string
	// message and remedy are parts of the cause's message and of a command.
	message, remedy string
}

// check waits for the explanation. The API server may answer lists of the command from a cache that
// is some milliseconds older than what prepare has seen.
func (b brokenCluster) check(t *testing.T) {
	b.prepare(t)
	var found cause
	await(t, "cause "+b.cause, func(ctx context.Context) error {
		text, err := kubectlAkri(ctx, append([]string{"explain", "--output=json"}, strings.Fields(b.object)...)...)
		require.NoError(t, err)
		var e explanation
		require.NoError(t, json.Unmarshal([]byte(text), &e), "%s", text)
		if found, err = e.cause(b.cause); err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
	require.Contains(t, found.Message, b.message)
	require.True(t, slices.ContainsFunc(found.Remedies, func(r struct{ Text, Command string }) bool {
		return strings.Contains(r.Command, b.remedy)
	}), "%+v", found.Remedies)
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
func inNamespace(namespace, configuration string, labels string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}\n---", namespace, labels) +
		strings.Replace(configuration, "namespace: default", "namespace: "+namespace, 1)
}

// whyWebhook refuses all Pods of a namespace: it is the webhook of Akri, which accepts only
// Configurations.
func whyWebhook(t *testing.T) {
	own, err := akri.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "akri-webhook-configuration", metav1.GetOptions{})
	require.NoError(t, err)
	whyRefused("why-webhook", "", fmt.Sprintf(`
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
`, mesh.Namespace, base64.StdEncoding.EncodeToString(own.Webhooks[0].ClientConfig.CABundle)))(t)
}

func whyRefused(namespace, labels, more string) func(*testing.T) {
	return func(t *testing.T) {
		apply(t, inNamespace(namespace, echoConfiguration(namespace, 1, broker, "foo0"), labels)+more)
		awaitCondition(t, namespace, namespace, akriv0.ConditionBrokersRunning, metav1.ConditionFalse, akriv0.ReasonBrokerRefused)
	}
}

func whyOffline(t *testing.T) {
	node := akri.Cluster.Nodes()[0]
	apply(t, configurationOf("why-offline", "whyOffline", ""))
	t.Run("registered", func(t *testing.T) { // its end stops the handler
		handle(t, node, "whyOffline", &discoveryv0.Device{Id: "x"})
		awaitInstances(t, "default", "why-offline", instanceName("why-offline", "x", "", true))
	})
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

func awaitPod(t *testing.T, name, what string, is func(*corev1.Pod) bool) {
	t.Helper()
	await(t, what, func(ctx context.Context) error {
		pod, err := akri.Kubernetes.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && !is(pod) {
			err = fmt.Errorf("status: %+v", pod.Status)
		}
		return err
	})
}

func whyUnschedulable(pod, resource string) func(*testing.T) {
	return func(t *testing.T) {
		apply(t, ownPod(pod, resource))
		awaitPod(t, pod, "an unschedulable Pod", func(pod *corev1.Pod) bool {
			return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable })
		})
	}
}

// whyLate places a Pod on a node whose slots are held, as the scheduler does with an outdated
// status of the node.
func whyLate(t *testing.T) {
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

// explainedCauses prepares broken clusters, and checks that explain names the cause and the remedy.
func explainedCauses(t *testing.T) {
	for _, broken := range []brokenCluster{
		{"no such handler", why("why-handler", configurationOf("why-handler", "udve", ""), akriv0.ConditionHandlerRegistered, akriv0.ReasonHandlerNotRegistered),
			"configuration why-handler", "NoSuchHandler", `"udve"`, `{"name":"udev"}`},
		{"handler offline", whyOffline, "configuration why-offline", "HandlerOffline", "cannot be reached", "kubectl get pods"},
		{"details refused", why("why-details", configurationOf("why-details", "udev", "udevRuels: []"), akriv0.ConditionDetailsAccepted, akriv0.ReasonInvalidDetails),
			"configuration why-details", "DetailsRefused", "udevRuels", "kubectl edit configuration.akri.sh why-details"},
		{"nothing matches", why("why-nothing", configurationOf("why-nothing", "udev", `udevRules: ['KERNEL=="why"']`), akriv0.ConditionDevicesFound, akriv0.ReasonNothingMatched),
			"configuration why-nothing", "NothingMatched", "no device matches on node-", "discoveryDetails"},
		{"Secret right missing", why("why-secret", whySecret, akriv0.ConditionDetailsAccepted, akriv0.ReasonPropertyForbidden),
			"configuration why-secret", "SecretRightMissing", "why-login", "kubectl create rolebinding"},
		{"collision", whyCollision, "configuration " + whyCollisionName, "DigestCollision", "at most 49 characters", "kubectl delete configuration.akri.sh"},
		{"name taken", whyTaken, "configuration why-taken --namespace=why-taken", "NameTaken", "default/why-taken", "kubectl delete configuration.akri.sh why-taken"},
		{"capacity used up", func(t *testing.T) { whyFull("why-full")(t); whyUnschedulable("why-full", "why-full-8120fe")(t) },
			"pod why-full", "CapacityUsed", "default/why-full-holder", "kubectl delete pod why-full-holder"},
		{"unknown resource", whyUnschedulable("why-typo", "why-no-such-device"), "pod why-typo", "ResourceUnknown", "why-no-such-device", "kubectl akri devices"},
		{"outdated node status", whyLate, "pod why-late", "OutdatedNodeStatus", "no free slot", "kubectl delete pod why-late"},
		{"broker image", why("why-image", echoConfiguration("why-image", 1, strings.Replace(broker, "ghcr.io/akri-mesh/sample-broker", "localhost:1/none", 1), "foo0"),
			akriv0.ConditionBrokersRunning, "ErrImagePull"), "configuration why-image", "ImageNotPulled", "localhost:1/none", "kubectl edit configuration.akri.sh why-image"},
		{"Pod Security", whyRefused("why-security", "pod-security.kubernetes.io/enforce: restricted", ""),
			"configuration why-security --namespace=why-security", "PodSecurity", "violates PodSecurity", "kubectl label namespace why-security"},
		{"webhook", whyWebhook,
			"configuration why-webhook --namespace=why-webhook", "WebhookRefused", "why.akri.sh", "kubectl get mutatingwebhookconfigurations"},
	} {
		t.Run(broken.name, func(t *testing.T) {
			t.Parallel()
			broken.check(t)
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
	for _, broken := range []brokenCluster{
		{"node without Akri", func(t *testing.T) {
			apply(t, "{apiVersion: v1, kind: Node, metadata: {name: why-tainted}, spec: {taints: [{key: why, value: gpu, effect: NoSchedule}]}}")
		}, "configuration why-works", "NodeWithoutAkri", "why=gpu:NoSchedule", "kubectl taint node why-tainted why=gpu:NoSchedule-"},
		{"version skew", func(t *testing.T) {
			t.Cleanup(func() {
				kubectl(context.WithoutCancel(t.Context()), "rollout", "undo")
				kubectl(context.WithoutCancel(t.Context()), "rollout", "status", "--timeout=1m")
			})
			_, err := akri.Kubectl(t.Context(), "", append([]string{"set", "image"}, append(controller, "broker-controller=localhost:1/broker-controller:v0.0.1")...)...)
			require.NoError(t, err)
		}, "configuration why-works", "VersionSkew", "v0.0.1: broker-controller", "kubectl rollout status"},
		{"webhook without a replica", func(t *testing.T) {
			t.Cleanup(func() {
				kubectl(context.WithoutCancel(t.Context()), "scale", "--replicas=1")
				kubectl(context.WithoutCancel(t.Context()), "rollout", "status", "--timeout=1m")
				require.NoError(t, akri.AwaitWebhook(context.WithoutCancel(t.Context())))
			})
			kubectl(t.Context(), "scale", "--replicas=0")
		}, "configuration why-new", "WebhookUnavailable", "refuses new", "kubectl scale deployment akri-controller-deployment"},
	} {
		t.Run(broken.name, broken.check)
	}
}
