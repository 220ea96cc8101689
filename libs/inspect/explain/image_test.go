package explain_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/inspect/explain"
)

// TestWaitsForImage names the container that starts next, and none if a Pod may wait for something
// else.
func TestWaitsForImage(t *testing.T) {
	waiting := func(reason string) *corev1.ContainerState {
		return &corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	creating, initializing := waiting("ContainerCreating"), waiting("PodInitializing")
	runs := &corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := &corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	for name, c := range map[string]struct {
		// The states of an init container and of two containers, nil if a cache does not keep it.
		states    [3]*corev1.ContainerState
		unready   bool // the sandbox
		phase     corev1.PodPhase
		container string
	}{
		"init container":       {states: [3]*corev1.ContainerState{initializing, initializing, initializing}, container: "init"},
		"init container runs":  {states: [3]*corev1.ContainerState{runs, initializing, initializing}},
		"trimmed init runs":    {states: [3]*corev1.ContainerState{nil, initializing, initializing}},
		"init container fails": {states: [3]*corev1.ContainerState{waiting("CrashLoopBackOff"), initializing, initializing}},
		"first container":      {states: [3]*corev1.ContainerState{ended, creating, creating}, container: "first"},
		"second container":     {states: [3]*corev1.ContainerState{ended, runs, creating}, container: "second"},
		"trimmed first runs":   {states: [3]*corev1.ContainerState{ended, nil, creating}, container: "second"},
		"all run":              {states: [3]*corev1.ContainerState{ended, runs, runs}},
		"no sandbox":           {states: [3]*corev1.ContainerState{ended, creating, creating}, unready: true},
		"Pod runs":             {states: [3]*corev1.ContainerState{ended, runs, creating}, phase: corev1.PodRunning},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
			if c.phase != "" {
				pod.Status.Phase = c.phase
			}
			if !c.unready {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}}
			}
			pod.Spec.InitContainers = []corev1.Container{{Name: "init"}}
			pod.Spec.Containers = []corev1.Container{{Name: "first"}, {Name: "second"}}
			for i, name := range []string{"init", "first", "second"} {
				statuses := &pod.Status.ContainerStatuses
				if i == 0 {
					statuses = &pod.Status.InitContainerStatuses
				}
				if c.states[i] != nil {
					*statuses = append(*statuses, corev1.ContainerStatus{Name: name, State: *c.states[i]})
				}
			}

			found := ""
			if container := explain.WaitsForImage(pod); container != nil {
				found = container.Name
			}
			require.Equal(t, c.container, found)
		})
	}
}

// The kubelet states the error of an attempt to pull an image, and later the same error in the
// message of the back-off, in the format of pkg/kubelet/images/image_manager.go.
func TestBackOffIsTheErrorOfTheAttempt(t *testing.T) {
	for _, image := range []string{"v1", "reg.example:5000/a/app@sha256:0123", `"quoted": ErrImagePull: `, `back\slash"`} {
		for _, reason := range []string{"ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed"} {
			for _, message := range []string{"not found", `pull "v1": ErrImagePull: x: y`, "two\nlines", ""} {
				backOff := fmt.Sprintf("Back-off pulling image %q: %s: %s", image, reason, message)
				for _, waiting := range []corev1.ContainerStateWaiting{{Reason: reason, Message: message}, {Reason: "ImagePullBackOff", Message: backOff}} {
					gotReason, gotMessage := explain.WhyWaiting(&waiting)
					require.Equal(t, []string{reason, message}, []string{gotReason, gotMessage}, backOff)
				}
			}
		}
	}
	for _, message := range []string{"", `Back-off pulling image "v1"`} { // without the error
		reason, same := explain.WhyWaiting(&corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: message})
		require.Equal(t, []string{"ErrImagePull", message}, []string{reason, same})
	}
}

// The verdict, with its cause and remedies, does not alternate either.
func TestVerdictDuringBackOffIsThatOfTheAttempt(t *testing.T) {
	for _, reason := range []string{"ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed"} {
		verdicts := func(waiting corev1.ContainerStateWaiting) []explain.Verdict {
			s := load(t, "image")
			i := slices.IndexFunc(s.Pods, func(pod corev1.Pod) bool { return pod.Name == "node-a-camera-8120fe-pod" })
			s.Pods[i].Status.ContainerStatuses[0].State.Waiting = &waiting
			return explain.Verdicts(s)
		}
		attempt := verdicts(corev1.ContainerStateWaiting{Reason: reason, Message: "x"})
		require.True(t, slices.ContainsFunc(attempt, func(v explain.Verdict) bool {
			return len(v.Causes) > 0 && v.Causes[0].ID == explain.ImageNotPulled
		}), reason)
		require.Equal(t, attempt, verdicts(corev1.ContainerStateWaiting{
			Reason: "ImagePullBackOff", Message: `Back-off pulling image "v1": ` + reason + ": x",
		}))
	}
}
