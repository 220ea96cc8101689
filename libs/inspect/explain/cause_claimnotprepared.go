package explain

import corev1 "k8s.io/api/core/v1"

// ClaimNotPrepared means that the node could not prepare a ResourceClaim of the Pod.
const ClaimNotPrepared CauseID = "ClaimNotPrepared"

func init() { register(rule{ClaimNotPrepared, LinkSlot, 10, claimNotPrepared}) }

// claimNotPrepared reads the Events of the kubelet, which starts no container before all claims are
// prepared.
func claimNotPrepared(t target, report func(Cause)) {
	if !isBeingPrepared(t.pod) || !HasClaims(t.pod) {
		return
	}

	var last *corev1.Event
	for i := range t.Unprepared {
		event := &t.Unprepared[i]
		about := event.InvolvedObject
		if about.Namespace == t.pod.Namespace && about.Name == t.pod.Name && about.UID == t.pod.UID &&
			(last == nil || last.LastTimestamp.Before(&event.LastTimestamp)) {
			last = event
		}
	}
	if last != nil {
		report(Cause{byEvent: true, Message: last.Message, Remedies: []Remedy{
			remedy("Read who holds the slots of the device. The kubelet tries again after 60 to 90 s.", "kubectl akri slots --all-namespaces"),
			t.readServiceLogs("Or read the logs of "+draKubeletPlugin+".", draKubeletPlugin),
		}})
	}
}
