package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/services/broker-controller/internal/render"
)

func pod(status corev1.PodStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}, Status: status}
}

// again returns a Pod whose predecessor ended soon.
func again(status corev1.PodStatus) *corev1.Pod {
	p := pod(status)
	p.Annotations = map[string]string{render.AnnotationAttempt: "1"}
	return p
}

func container(restarts int32, state corev1.ContainerState) []corev1.ContainerStatus {
	end := &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}
	return []corev1.ContainerStatus{{Name: "c", RestartCount: restarts, State: state, LastTerminationState: corev1.ContainerState{Terminated: end}}}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func TestStateOfPod(t *testing.T) {
	const crash = `container "c" ends with exit code 3 (Error)`
	deleting := pod(corev1.PodStatus{Phase: corev1.PodRunning})
	deleting.DeletionTimestamp = &metav1.Time{}
	withoutImage := pod(corev1.PodStatus{
		Phase: corev1.PodPending, ContainerStatuses: container(0, waiting("ContainerCreating", "")),
		Conditions: []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}},
	})
	withoutImage.Spec.Containers = []corev1.Container{{Name: "c", Image: "reg/app:1"}}
	for name, c := range map[string]struct {
		pod             *corev1.Pod
		state           brokerState
		reason, message string
	}{
		"runs":               {pod(corev1.PodStatus{Phase: corev1.PodRunning}), running, "", ""},
		"restarted once":     {pod(corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: container(1, corev1.ContainerState{})}), running, "", ""},
		"deleting":           {deleting, replaced, "", ""},
		"pending":            {pod(corev1.PodStatus{Phase: corev1.PodPending}), pending, "NotStarted", "the Pod is pending; see its Events"},
		"waits for image":    {withoutImage, pending, "NotStarted", `container "c" waits for its image "reg/app:1"; see the Events of the Pod`},
		"image":              {pod(corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: container(0, waiting("ErrImagePull", "not found"))}), failing, "ErrImagePull", "not found"},
		"image, later":       {pod(corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: container(0, waiting("ImagePullBackOff", `Back-off pulling image "v1": ErrImagePull: not found`))}), failing, "ErrImagePull", "not found"},
		"Secret":             {pod(corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: container(0, waiting("CreateContainerConfigError", "no Secret"))}), failing, "CreateContainerConfigError", "no Secret"},
		"crash loop":         {pod(corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: container(3, waiting("CrashLoopBackOff", "back-off 40s"))}), failing, "CrashLoopBackOff", crash},
		"crash loop, init":   {pod(corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: container(3, waiting("CrashLoopBackOff", "back-off 40s"))}), failing, "CrashLoopBackOff", crash},
		"runs after crashes": {pod(corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: container(3, corev1.ContainerState{})}), recovering, "", ""},
		"ended":              {pod(corev1.PodStatus{Phase: corev1.PodFailed}), replaced, "", ""},
		"ended again":        {again(corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: container(0, corev1.ContainerState{})}), failing, "BrokerFailed", crash},
		"rejected again":     {again(corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfakri.sh/cam", Message: "no device"}), failing, "BrokerFailed", "no device"},
		"long reason":        {again(corev1.PodStatus{Phase: corev1.PodFailed, Reason: strings.Repeat("X", 1025), Message: "m"}), failing, "BrokerFailed", "m"},
		"evicted again":      {again(corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low memory"}), failing, "Evicted", "low memory"},
		"replacement runs":   {again(corev1.PodStatus{Phase: corev1.PodRunning}), recovering, "", ""},
		"unschedulable": {
			pod(corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "untolerated taint",
			}}}), pending, "Unschedulable", "untolerated taint",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := stateOfPod(c.pod)
			require.Equal(t, c.state, got.state)
			require.Equal(t, c.reason, got.reason)
			require.Equal(t, c.message, got.message)
		})
	}
}

func TestStateOfJob(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "j"}}
	of := func(phase corev1.PodPhase) *corev1.Pod {
		p := pod(corev1.PodStatus{Phase: phase})
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
		return p
	}
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		want brokerState
	}{
		"no Pod":            {nil, pending},
		"Pod of another":    {[]*corev1.Pod{pod(corev1.PodStatus{Phase: corev1.PodRunning})}, pending},
		"running":           {[]*corev1.Pod{of(corev1.PodFailed), of(corev1.PodRunning)}, running},
		"between two tries": {[]*corev1.Pod{of(corev1.PodFailed)}, replaced},
	} {
		require.Equal(t, c.want, stateOfJob(job, c.pods).state, name)
	}
}

func TestLongStates(t *testing.T) {
	now := time.Unix(1000, 0)
	for from, to := range map[brokerState]brokerState{pending: failing, recovering: running, replaced: replaced, failing: failing} {
		previous := map[types.UID]observation{}
		settle := func(after time.Duration, restarts int32) (brokerState, time.Time) {
			seen := observer{now: now.Add(after), timeout: 30 * time.Second, previous: previous, current: map[types.UID]observation{}}
			result := seen.settle("uid", restarts, broker{state: from})
			previous = seen.current
			return result.state, seen.next.At
		}
		timed := from == pending || from == recovering
		for _, step := range []struct {
			after    time.Duration
			restarts int32
			want     brokerState
			next     time.Time
		}{
			{0, 1, from, now.Add(30 * time.Second)}, {29 * time.Second, 1, from, now.Add(30 * time.Second)},
			{30 * time.Second, 1, to, time.Time{}}, {31 * time.Second, 2, from, now.Add(61 * time.Second)},
		} {
			state, next := settle(step.after, step.restarts)
			require.Equal(t, step.want, state)
			if timed {
				require.Equal(t, step.next, next)
			}
		}
	}
}

func TestMessageOfBrokers(t *testing.T) {
	fails := func(name, reason, message string) broker {
		b := broker{name: name}
		b.fail(reason, message, "later")
		return b
	}
	got := brokersRunning([]broker{{state: running}, fails("a", "X", "why"), fails("b", "X", "why"), fails("c", "Y", strings.Repeat("ä", 1000)), {state: completed}})
	require.Contains(t, got.Message, "1 of 5 brokers run, 1 completed; a and 1 more: X: why; later; c: Y: ")
	require.Equal(t, "X", got.Reason)
	require.Less(t, len(got.Message), 700)
}

// The end of a container has the last lines of its log, which can have secrets. They are not in the
// condition on the brokers, also not if a cache keeps them.
func TestLogsAreNotInTheCondition(t *testing.T) {
	const secret = "password=hunter2"
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}
	named := 0
	for _, status := range []corev1.PodStatus{
		{Phase: corev1.PodRunning},
		{Phase: corev1.PodRunning, ContainerStatuses: container(3, waiting("CrashLoopBackOff", "back-off 40s"))},
		{Phase: corev1.PodRunning, ContainerStatuses: container(3, ended)},
		{Phase: corev1.PodPending, InitContainerStatuses: container(3, waiting("CrashLoopBackOff", "back-off 40s"))},
		{Phase: corev1.PodPending, ContainerStatuses: container(1, waiting("CreateContainerConfigError", "no Secret"))},
		{Phase: corev1.PodFailed, ContainerStatuses: container(0, ended)},
		{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low memory", ContainerStatuses: container(0, ended)},
	} {
		for _, containers := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
			for i := range containers {
				for _, state := range []*corev1.ContainerState{&containers[i].State, &containers[i].LastTerminationState} {
					if state.Terminated != nil {
						state.Terminated.Message = secret
					}
				}
			}
		}
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "j"}}
		ofJob := again(status)
		ofJob.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
		condition := brokersRunning([]broker{stateOfPod(pod(status)), stateOfPod(again(status)), stateOfJob(job, []*corev1.Pod{ofJob})})
		require.NotContains(t, condition.Message+condition.Reason, secret)
		if strings.Contains(condition.Message, "ends with exit code 3") {
			named++
		}
	}
	require.NotZero(t, named, "a condition that states how a container ends")
}
