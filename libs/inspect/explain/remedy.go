package explain

import (
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// plainName matches the names that may be part of a command: nodes and authors of Configurations
// can choose texts that a shell would execute.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][-._A-Za-z0-9]*$`)

// edit is the remedy to change the Configuration.
func edit(c *akriv0.Configuration) Remedy {
	return Remedy{Text: "Correct the Configuration.", Command: fmt.Sprintf("kubectl edit configuration.akri.sh %s --namespace %s", c.Name, c.Namespace)}
}

// rename cannot be one command, because Kubernetes cannot rename objects.
func rename(c *akriv0.Configuration, name string) Remedy {
	return Remedy{
		Text:       "Give the Configuration " + name + " in its manifest, and replace it.",
		Command:    fmt.Sprintf("kubectl delete configuration.akri.sh %s --namespace %s && kubectl apply -f CONFIGURATION.yaml", c.Name, c.Namespace),
		Interrupts: []akriv0.Subject{{Kind: "Configuration", Namespace: c.Namespace, Name: c.Name}},
	}
}

func deletePod(text string, pod *corev1.Pod) Remedy {
	return Remedy{
		Text: text, Command: fmt.Sprintf("kubectl delete pod %s --namespace %s", pod.Name, pod.Namespace),
		Interrupts: []akriv0.Subject{{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}},
	}
}

func describePod(text string, pod *corev1.Pod) Remedy {
	return Remedy{Text: text, Command: fmt.Sprintf("kubectl describe pod %s --namespace %s", pod.Name, pod.Namespace)}
}

// readLogs is the remedy to read the logs of the Pod, or of one of its containers.
func readLogs(pod *corev1.Pod, options string) Remedy {
	return Remedy{Text: "Read the logs.", Command: fmt.Sprintf("kubectl logs %s --namespace %s", pod.Name, pod.Namespace) + options}
}

// readPods returns the remedies to look at the Pod of the service, or of the agent, on the node.
func (s *Snapshot) readPods(text, node, service string) []Remedy {
	selector := fmt.Sprintf("--namespace %s --selector '%s in (%s,%s)'", s.nodeNamespace(), ComponentLabel, service, agent)
	return []Remedy{
		{Text: text, Command: fmt.Sprintf("kubectl get pods --output wide %s --field-selector spec.nodeName=%s", selector, node)},
		{Text: "Read its logs.", Command: "kubectl logs --tail=50 --prefix " + selector},
	}
}

// upgrade returns the command that changes values of Akri's release.
func (s *Snapshot) upgrade(values string) string {
	release, namespace := s.release()
	return fmt.Sprintf("helm upgrade %s charts/akri --namespace %s --reset-then-reuse-values %s", release, namespace, values)
}
