// Package try finds out what a Discovery Handler would find on each node. It runs the command `try`
// in the Pods of discovery-operator or the agent, so that it needs neither a Configuration nor
// rights of the nodes.
package try

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	utilexec "k8s.io/client-go/util/exec"

	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/trial"
	"akri.sh/tools/kubectl-akri/internal/mask"
)

// Components are those whose Pods have the command `try`.
var Components = []string{"discovery-operator", "agent"}

// NotRun is the reason of a problem in addition to those of trial.Problem: the command did not run,
// or has failed.
const NotRun = "NotRun"

const (
	// maxCalls is the number of nodes at a time.
	maxCalls = 50
	// overhead is the time for starting the command and for its result.
	overhead = 10 * time.Second
	// usageError is the exit code of a service that does not have the command.
	usageError = 2
)

// Exec runs a command in a container of a Pod, until it ends or ctx ends.
type Exec func(ctx context.Context, pod *corev1.Pod, container string, command []string, in io.Reader, out, problems io.Writer) error

// Pods returns one Pod with the command for each node, by node.
func Pods(all []corev1.Pod) []corev1.Pod {
	pods := slices.DeleteFunc(slices.Clone(all), func(pod corev1.Pod) bool {
		return !explain.IsAkri(&pod) || !slices.Contains(Components, component(&pod)) || pod.Spec.NodeName == ""
	})
	unready := func(pod *corev1.Pod) int {
		if explain.PodReady(pod) {
			return 0
		}
		return 1
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Spec.NodeName, b.Spec.NodeName), cmp.Compare(unready(&a), unready(&b)), cmp.Compare(a.Name, b.Name))
	})
	return slices.CompactFunc(pods, func(a, b corev1.Pod) bool { return a.Spec.NodeName == b.Spec.NodeName })
}

func component(pod *corev1.Pod) string { return pod.Labels[explain.ComponentLabel] }

// All tries the request in all Pods at once, and returns the results in their order, without
// secrets. It calls finished with each node that has a result.
func All(ctx context.Context, exec Exec, pods []corev1.Pod, request trial.Request, finished func(node string)) ([]trial.Result, error) {
	results := each(ctx, exec, pods, request, finished)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return masked(results)
}

func each(ctx context.Context, exec Exec, pods []corev1.Pod, request trial.Request, finished func(node string)) []trial.Result {
	results := make([]trial.Result, len(pods))
	var group errgroup.Group
	group.SetLimit(maxCalls)
	for i := range pods {
		group.Go(func() error {
			results[i] = one(ctx, exec, &pods[i], request)
			finished(results[i].Node)
			return nil
		})
	}
	_ = group.Wait()
	return results
}

func one(ctx context.Context, exec Exec, pod *corev1.Pod, request trial.Request) trial.Result {
	result := trial.Result{Node: pod.Spec.NodeName}
	if pod.Status.Phase != corev1.PodRunning {
		result.Problems = []trial.Problem{{Reason: NotRun, Message: fmt.Sprintf("the Pod %s/%s is %s", pod.Namespace, pod.Name, pod.Status.Phase)}}
		return result
	}
	ctx, cancel := context.WithTimeout(ctx, request.Timeout+overhead)
	defer cancel()
	// The command ends when its input ends: with the connection, not with the request.
	in, user := io.Pipe()
	defer func() { _ = user.Close() }()
	go func() { _ = json.NewEncoder(user).Encode(request) }()
	var out, problems bytes.Buffer
	err := exec(ctx, pod, component(pod), []string{"/bin/" + component(pod), "try"}, in, &out, &problems)
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &result)
	}
	if err != nil {
		result.Problems = []trial.Problem{problemOf(pod, err, &problems)}
	}
	result.Node = pod.Spec.NodeName
	return result
}

func problemOf(pod *corev1.Pod, err error, problems *bytes.Buffer) trial.Problem {
	message := err.Error()
	if exit, ok := errors.AsType[utilexec.CodeExitError](err); ok { // the command has ended, so problems is complete
		message = cmp.Or(strings.TrimSpace(problems.String()), message)
		if exit.Code == usageError {
			message += "; upgrade Akri: its version does not have the command"
		}
	}
	return trial.Problem{Reason: NotRun, Message: fmt.Sprintf("the command in the Pod %s/%s failed: %s", pod.Namespace, pod.Name, message)}
}

// masked returns the results without what looks like a secret, as in an archive for a report.
func masked(results []trial.Result) ([]trial.Result, error) {
	encoded, err := json.Marshal(results)
	if err != nil {
		return nil, fmt.Errorf("mask secrets: %w", err)
	}
	var decoded any
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		return nil, fmt.Errorf("mask secrets: %w", err)
	}
	if encoded, err = json.Marshal(new(mask.Masker).Object(decoded)); err != nil {
		return nil, fmt.Errorf("mask secrets: %w", err)
	}
	results = nil
	if err := json.Unmarshal(encoded, &results); err != nil {
		return nil, fmt.Errorf("mask secrets: %w", err)
	}
	return results, nil
}
