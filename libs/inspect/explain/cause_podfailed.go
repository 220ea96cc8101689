package explain

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// PodFailed means that the Pod has ended with an error.
const PodFailed CauseID = "PodFailed"

func init() {
	register(rule{PodFailed, LinkContainer, 3, podFailed}, rule{PodFailed, LinkCreated, 4, brokersFailed})
}

func podFailed(t target, report func(Cause)) {
	if t.pod.Status.Phase != corev1.PodFailed {
		return
	}

	message := strings.TrimSuffix(t.pod.Status.Reason+": "+t.pod.Status.Message, ": ")
	for _, status := range containers(t.pod) {
		if end := status.State.Terminated; end != nil && end.ExitCode != 0 {
			message = fmt.Sprintf("container %q ended with exit code %d (%s)", status.Name, end.ExitCode, end.Reason)
			break
		}
	}
	report(Cause{Message: message, Remedies: []Remedy{readLogs(t.pod)}})
}

// brokersFailed finds brokers whose Pods do not exist any more.
func brokersFailed(t target, report func(Cause)) {
	running := condition(t.configuration, akriv0.ConditionBrokersRunning)
	if t.refusal == "" && len(t.brokers) == 0 && running.Status == metav1.ConditionFalse {
		report(Cause{Message: running.Message, Remedies: []Remedy{
			describeConfiguration("Read the Events of the Configuration.", t.configuration),
		}})
	}
}
