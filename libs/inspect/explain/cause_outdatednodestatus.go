package explain

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OutdatedNodeStatus means that the scheduler placed the Pod before the node had reported that
// another node reserved the slot, or that the device is not available.
const OutdatedNodeStatus CauseID = "OutdatedNodeStatus"

func init() { register(rule{OutdatedNodeStatus, LinkAdmitted, 1, outdatedNodeStatus}) }

// outdatedNodeStatus finds Pods for which the kubelet had fewer healthy devices than they request.
// The messages are those of `devicesToAllocate` in its device manager.
func outdatedNodeStatus(t target, report func(Cause)) {
	message := t.pod.Status.Message
	if !strings.Contains(message, "requested number of devices unavailable") && !strings.Contains(message, "no healthy devices present") {
		return
	}

	again := applyAgain
	if metav1.GetControllerOf(t.pod) == nil {
		again = "Delete the Pod, and apply its manifest again."
	}
	report(Cause{
		Message: fmt.Sprintf("%s had no free slot when the Pod arrived. The scheduler did not know yet that another node had reserved it, or that the device was not available", t.pod.Spec.NodeName),
		Remedies: []Remedy{deletePod(again, t.pod), {
			Text: "If it happens often: let the kubelets report sooner. Set nodeStatusUpdateFrequency: 1s and nodeStatusReportFrequency: 5m.",
		}},
	})
}
