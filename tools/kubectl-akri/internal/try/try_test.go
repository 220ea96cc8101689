package try_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilexec "k8s.io/client-go/util/exec"

	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/trial"
	"akri.sh/tools/kubectl-akri/internal/try"
)

func pod(name, component, node string, ready bool) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "akri", Labels: map[string]string{
			explain.PartOfLabel: explain.PartOf, explain.ComponentLabel: component,
		}},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func TestPods(t *testing.T) {
	other := pod("other", "discovery-operator", "node-c", true)
	other.Labels[explain.PartOfLabel] = "another"
	var names []string
	for _, p := range try.Pods([]corev1.Pod{
		pod("b", "agent", "node-b", true), pod("ending", "discovery-operator", "node-b", false), pod("pending", "agent", "", false),
		pod("a", "discovery-operator", "node-a", false), pod("registrar", "registrar", "node-c", true), other,
	}) {
		names = append(names, p.Name)
	}
	require.Equal(t, []string{"a", "b"}, names)
}

var request = trial.Request{Handler: "udev", Details: "d", Timeout: time.Minute}

// all tries on the Pods. exec gets the input of the command, which is open until exec returns.
func all(t *testing.T, exec func(container string, in io.Reader, out, problems io.Writer) error, pods ...corev1.Pod) []trial.Result {
	t.Helper()
	var mu sync.Mutex
	var finished []string
	results, err := try.All(t.Context(), func(ctx context.Context, pod *corev1.Pod, container string, command []string, in io.Reader, out, problems io.Writer) error {
		require.Equal(t, []string{"/bin/" + container, "try"}, command)
		return exec(container, in, out, problems)
	}, pods, request, func(node string) {
		mu.Lock()
		defer mu.Unlock()
		finished = append(finished, node)
	})
	require.NoError(t, err)
	require.Len(t, finished, len(pods))
	return results
}

// Results are in the order of the nodes, and have no secrets.
func TestAll(t *testing.T) {
	results := all(t, func(container string, in io.Reader, out, _ io.Writer) error {
		var received trial.Request
		require.NoError(t, json.NewDecoder(in).Decode(&received))
		require.Equal(t, request, received)
		return json.NewEncoder(out).Encode(trial.Result{Answered: true, Devices: []trial.Device{{
			ID: container, Properties: map[string]string{"PASSWORD": "hunter22", "URL": "http://me:hunter22@camera/", "MODEL": "x"},
		}}})
	}, pod("a", "discovery-operator", "node-a", true), pod("b", "agent", "node-b", true))
	masked := map[string]string{"PASSWORD": "MASKED", "URL": "http://MASKED@camera/", "MODEL": "x"}
	require.Equal(t, []trial.Result{
		{Node: "node-a", Answered: true, Devices: []trial.Device{{ID: "discovery-operator", Properties: masked}}},
		{Node: "node-b", Answered: true, Devices: []trial.Device{{ID: "agent", Properties: masked}}},
	}, results)
}

func TestProblems(t *testing.T) {
	pending := pod("a", "agent", "node-a", false)
	pending.Status.Phase = corev1.PodPending
	running := pod("a", "agent", "node-a", true)
	for _, test := range []struct {
		pod             corev1.Pod
		err             error
		stderr, message string
	}{
		{pending, nil, "", "the Pod akri/a is Pending"},
		{running, errors.New("connection lost"), "", "the command in the Pod akri/a failed: connection lost"},
		{running, utilexec.CodeExitError{Code: 1, Err: errors.New("exit code 1")}, "no registrar\n", "the command in the Pod akri/a failed: no registrar"},
		{running, utilexec.CodeExitError{Code: 2, Err: errors.New("exit code 2")}, "unexpected argument try\n", "upgrade Akri"},
		{running, nil, "", "unexpected end of JSON input"},
	} {
		result := all(t, func(_ string, _ io.Reader, _, problems io.Writer) error {
			_, _ = io.WriteString(problems, test.stderr)
			return test.err
		}, test.pod)[0]
		require.Equal(t, "node-a", result.Node)
		require.Len(t, result.Problems, 1)
		require.Equal(t, try.NotRun, result.Problems[0].Reason)
		require.Contains(t, result.Problems[0].Message, test.message)
	}
}

// The input of the command ends with the trial, also if the connection stays open.
func TestInputEnds(t *testing.T) {
	ended := make(chan error, 1)
	all(t, func(_ string, in io.Reader, _, _ io.Writer) error {
		go func() {
			_, err := io.Copy(io.Discard, in)
			ended <- err
		}()
		return errors.New("connection lost")
	}, pod("a", "agent", "node-a", true))
	require.NoError(t, <-ended)
}

func TestInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	_, err := try.All(ctx, func(ctx context.Context, _ *corev1.Pod, _ string, _ []string, _ io.Reader, _, _ io.Writer) error {
		interrupt()
		<-ctx.Done()
		return ctx.Err()
	}, slices.Repeat([]corev1.Pod{pod("a", "agent", "node-a", true)}, 3), request, func(string) {})
	require.ErrorIs(t, err, context.Canceled)
}
