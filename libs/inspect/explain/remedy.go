package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// plainName matches names of objects. plainText matches the texts that may be part of a command:
// nodes and authors of Configurations can choose texts that a shell would execute.
var (
	plainName = regexp.MustCompile(`^[A-Za-z0-9][-._A-Za-z0-9]*$`)
	plainText = regexp.MustCompile(`^([A-Za-z0-9][-._/:=A-Za-z0-9]*)?$`)
)

// fragment is a part of a command that this package has made.
type fragment string

// remedy returns a remedy with a command, which is a format for the arguments. It has no command if
// an argument is neither a plain text nor a fragment.
func remedy(text, command string, arguments ...any) Remedy {
	for _, argument := range arguments {
		if _, made := argument.(fragment); !made && !plainText.MatchString(fmt.Sprint(argument)) {
			return Remedy{Text: text}
		}
	}
	return Remedy{Text: text, Command: strings.TrimSpace(fmt.Sprintf(command, arguments...))}
}

// interrupting adds an object that the command stops or restarts.
func (r Remedy) interrupting(kind, namespace, name string) Remedy {
	r.Interrupts = append(r.Interrupts, *subject(kind, namespace, name))
	return r
}

func subject(kind, namespace, name string) *akriv0.Subject {
	return &akriv0.Subject{Kind: kind, Namespace: namespace, Name: name}
}

// edit is the remedy to change the Configuration.
func edit(c *akriv0.Configuration) Remedy {
	return remedy("Correct the Configuration.", "kubectl edit configuration.akri.sh %s --namespace %s", c.Name, c.Namespace)
}

func describeConfiguration(text string, c *akriv0.Configuration) Remedy {
	return remedy(text, "kubectl describe configuration.akri.sh %s --namespace %s", c.Name, c.Namespace)
}

// rename cannot be one command, because Kubernetes cannot rename objects.
func rename(c *akriv0.Configuration, name string) Remedy {
	return remedy("Give the Configuration "+name+" in its manifest, and replace it.",
		"kubectl delete configuration.akri.sh %s --namespace %s && kubectl apply -f CONFIGURATION.yaml", c.Name, c.Namespace,
	).interrupting("Configuration", c.Namespace, c.Name)
}

// deletePod interrupts nothing if the Pod has ended, such as one that the kubelet rejected.
func deletePod(text string, pod *corev1.Pod) Remedy {
	r := remedy(text, "kubectl delete pod %s --namespace %s", pod.Name, pod.Namespace)
	if ended(pod) {
		return r
	}
	return r.interrupting("Pod", pod.Namespace, pod.Name)
}

func describePod(text string, pod *corev1.Pod) Remedy {
	return remedy(text, "kubectl describe pod %s --namespace %s", pod.Name, pod.Namespace)
}

func readLogs(pod *corev1.Pod) Remedy {
	return remedy("Read the logs.", "kubectl logs %s --namespace %s", pod.Name, pod.Namespace)
}

// readPods returns the remedies to look at the Pod of the service, or of the agent, on the node.
func (in *Installation) readPods(text, node, service string) []Remedy {
	return []Remedy{
		remedy(text, "kubectl get pods --output wide %s --field-selector spec.nodeName=%s", in.selectPods(service), node),
		in.readServiceLogs("Read its logs.", service),
	}
}

// readServiceLogs is the remedy to read the logs of the service, or of the agent, on all nodes.
func (in *Installation) readServiceLogs(text, service string) Remedy {
	return remedy(text, "kubectl logs --tail=50 --prefix %s", in.selectPods(service))
}

func (in *Installation) selectPods(service string) fragment {
	return fragment(fmt.Sprintf("--namespace %s --selector '%s in (%s,%s)'", in.nodeNamespace(), ComponentLabel, service, agent))
}

// upgrade is the remedy to upgrade Akri's release, with changed values if there are any. They are a
// format for the arguments. Callers add what it restarts: Pods of which the values change the spec.
// Without them it restarts nothing, because the chart is that of the installed version.
func (in *Installation) upgrade(text, values string, arguments ...any) Remedy {
	release, namespace := in.release()
	return remedy(text, "helm upgrade %s charts/akri --namespace %s --reset-then-reuse-values "+values, append([]any{release, namespace}, arguments...)...)
}

// restarting adds that the command restarts services of Akri's release.
func (in *Installation) restarting(r Remedy) Remedy {
	release, namespace := in.release()
	return r.interrupting("Release", namespace, release)
}

// interruptingLast returns all remedies, those that interrupt nothing first.
func interruptingLast(remedies ...Remedy) []Remedy {
	slices.SortStableFunc(remedies, func(a, b Remedy) int {
		return min(1, len(a.Interrupts)) - min(1, len(b.Interrupts))
	})
	return remedies
}
