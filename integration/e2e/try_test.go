package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/trial"

	"akri.sh/integration/mesh"
)

// try runs `kubectl akri try` and returns its results. They are valid also if no node has answered.
func try(ctx context.Context, arguments ...string) ([]trial.Result, error) {
	text, err := kubectlAkri(ctx, append([]string{"try", "--output=json"}, arguments...)...)
	var results []trial.Result
	if text == "" {
		return nil, err
	}
	return results, errors.Join(err, json.Unmarshal([]byte(text), &results))
}

// tryOn runs `kubectl akri try` and returns an error unless every node finds exactly the devices.
func tryOn(ctx context.Context, arguments ...string) func(ids ...string) ([]trial.Result, error) {
	return func(ids ...string) ([]trial.Result, error) {
		text, err := kubectlAkri(ctx, append([]string{"try", "--output=json"}, arguments...)...)
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, text)
		}
		var results []trial.Result
		if err := json.Unmarshal([]byte(text), &results); err != nil {
			return nil, err
		}
		slices.Sort(ids)
		for _, result := range results {
			var found []string
			for _, device := range result.Devices {
				found = append(found, device.ID)
			}
			if !result.Answered || !slices.Equal(found, ids) {
				return nil, fmt.Errorf("the result is %+v", result)
			}
		}
		return results, nil
	}
}

// problem returns the message of the problem with the reason on each node.
func problem(t *testing.T, results []trial.Result, reason string) string {
	t.Helper()
	require.NotEmpty(t, results)
	var message string
	for _, result := range results {
		i := slices.IndexFunc(result.Problems, func(p trial.Problem) bool { return p.Reason == reason })
		require.GreaterOrEqual(t, i, 0, "%+v", result)
		message = result.Problems[i].Message
	}
	return message
}

func tried(t *testing.T) {
	parallel(t,
		triedDevices,
		triedProblems,
		triedRights,
		triedInterrupted,
		explainedMiss,
	)
}

// triedDevices finds a device of each node, and one that both nodes see.
func triedDevices(t *testing.T) {
	nodes := akri.Cluster.Nodes()
	const null = "/devices/virtual/mem/null"
	results, err := tryOn(t.Context(), "udev", `--rule=SUBSYSTEM=="mem", KERNEL=="null|kmsg"`)(null)
	require.NoError(t, err)
	require.Len(t, results, len(nodes))
	for i, result := range results {
		require.Equal(t, nodes[i].Name(), result.Node)
		require.Equal(t, trial.Device{
			ID: null, DeviceNodes: []string{"/dev/null"}, Properties: map[string]string{"UDEV_DEVPATH": null, "UDEV_DEVNODE": "/dev/null"},
		}, result.Devices[0])
	}
	require.Contains(t, problem(t, results, akriv0.ReasonInvalidDevice), "/dev/kmsg")

	details := filepath.Join(t.TempDir(), "details.yaml")
	require.NoError(t, os.WriteFile(details, []byte("descriptions: [foo0]"), 0o600))
	text, err := kubectlAkri(t.Context(), "try", "debugEcho", "--details="+details)
	require.NoError(t, err)
	require.Regexp(t, nodes[0].Name()+","+nodes[1].Name()+` +foo0 +true`, text)

	await(t, "the closest devices", func(ctx context.Context) error { // within the time limit of try
		text, err := kubectlAkri(ctx, "try", "udev", "--rule="+mistakenRule)
		for _, part := range []string{
			"No device matches on " + nodes[0].Name() + ", " + nodes[1].Name(), "closest: " + closestDevice(),
			"To match /dev/null (mem), use these discoveryDetails:\n  udevRules:\n  - " + correctedRule + "\n",
		} {
			if err == nil && !strings.Contains(text, part) {
				err = fmt.Errorf("no %q in %s", part, text)
			}
		}
		return err
	})

	results, err = tryOn(t.Context(), "udev", `--rule=KERNEL=="e2e-nothing"`, "--node="+nodes[1].Name())()
	require.NoError(t, err)
	require.Equal(t, []trial.Result{{Node: nodes[1].Name(), Answered: true}}, results)
}

func triedProblems(t *testing.T) {
	results, err := try(t.Context(), "udev", `--rule=KERNEL=="a", RUN+="x"`)
	require.ErrorContains(t, err, "no node has sent a list of devices")
	require.Contains(t, problem(t, results, akriv0.ReasonInvalidDetails), "position 14: key RUN is not supported")
	results, err = try(t.Context(), "e2eNoSuchHandler")
	require.ErrorContains(t, err, "no node has sent a list of devices")
	require.Regexp(t, "registered: .*debugEcho.*udev", problem(t, results, akriv0.ReasonHandlerNotRegistered))
	_, err = try(t.Context(), "onvif", "--node=e2e-no-such-node")
	require.ErrorContains(t, err, `discovery-operator does not run on the node "e2e-no-such-node"`)
}

// mistakenRule matches no device. /dev/null comes close.
const (
	mistakenRule  = `SUBSYSTEM=="mem", KERNEL=="nul?", ENV{DEVNAME}=="/dev/nul"`
	correctedRule = `SUBSYSTEM=="mem", KERNEL=="nul?", ENV{DEVNAME}=="/dev/null"`
)

// closestDevice returns the text for the closest device on all nodes.
func closestDevice() string {
	var nodes []string
	for _, node := range akri.Cluster.Nodes() {
		nodes = append(nodes, node.Name())
	}
	return "/dev/null (mem) on " + strings.Join(nodes, ", ") +
		`: SUBSYSTEM=="mem", KERNEL=="nul?" matched, ENV{DEVNAME}=="/dev/nul" did not: it is "/dev/null"`
}

// explainedMiss checks that explain names the device that comes close, if its user may run commands
// in the Pods of Akri, and the cause in any case. With the corrected details the device is found.
func explainedMiss(t *testing.T) {
	apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-reads}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-reads}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: e2e-reads}]
`)
	apply(t, configurationOf("e2e-miss", "udev", "udevRules: ['"+mistakenRule+"']"))
	awaitCondition(t, "default", "e2e-miss", akriv0.ConditionDevicesFound, metav1.ConditionFalse, akriv0.ReasonNothingMatched)
	explained := func(ctx context.Context, flags ...string) (explain.Cause, error) {
		text, err := kubectlAkri(ctx, append([]string{"explain", "configuration", "e2e-miss", "--output=json"}, flags...)...)
		if err != nil {
			return explain.Cause{}, err
		}
		var e explanation
		require.NoError(t, json.Unmarshal([]byte(text), &e), "%s", text)
		return e.cause("NothingMatched")
	}
	var corrected string
	await(t, "the devices that come close", func(ctx context.Context) error { // within the time limit of explain
		found, err := explained(ctx)
		if err != nil {
			return err
		}
		if len(found.Closest) == 0 || found.Closest[0].String() != closestDevice() {
			return fmt.Errorf("the closest are %v", found.Closest)
		}
		corrected = found.Closest[0].CorrectedDetails
		return nil
	})
	require.Equal(t, "udevRules: ['"+correctedRule+"']\n", corrected)
	awaitPages(t, page{path: "/configurations/default/e2e-miss", parts: []string{"<li>" + closestDevice() + "</li>", correctedRule}})
	await(t, "an explanation for a user without the right", func(ctx context.Context) error { // RBAC is cached
		found, err := explained(ctx, "--as=e2e-reads")
		if err == nil && len(found.Closest) > 0 {
			err = fmt.Errorf("the closest are %v", found.Closest)
		}
		return err
	})

	apply(t, configurationOf("e2e-miss", "udev", strings.TrimSpace(corrected)))
	awaitCondition(t, "default", "e2e-miss", akriv0.ConditionDevicesFound, metav1.ConditionTrue, akriv0.ReasonAsExpected)
}

// triedRights is done by users who may list Pods, and one of them may also run commands in them.
func triedRights(t *testing.T) {
	apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: e2e-try, namespace: %[1]s}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: e2e-try-exec, namespace: %[1]s}
rules: [{apiGroups: [""], resources: [pods/exec], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: e2e-try, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: e2e-try}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: e2e-lists}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: e2e-tries}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: e2e-try-exec, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: e2e-try-exec}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: e2e-tries}]
`, mesh.Namespace))
	rule := `--rule=KERNEL=="e2e-nothing"`
	await(t, "a trial of a user with the rights", func(ctx context.Context) error { // RBAC is cached
		_, err := tryOn(ctx, "udev", rule, "--as=e2e-tries", "--namespace="+mesh.Namespace)()
		return err
	})
	_, err := try(t.Context(), "udev", rule, "--as=e2e-lists", "--namespace="+mesh.Namespace)
	require.ErrorContains(t, err, "you need the right to create pods/exec in the namespace "+mesh.Namespace)
	_, err = try(t.Context(), "udev", rule, "--as=e2e-without-rights")
	require.ErrorContains(t, err, "list the Pods of Akri, whose namespace --namespace can name")
}

// triedInterrupted tries a handler that sends no list. The stream to the handler ends when its user
// interrupts the command, also if the user does not wait for it.
func triedInterrupted(t *testing.T) {
	node := akri.Cluster.Nodes()[0]
	handler := handle(t, node, "e2eTry")
	awaitStreams := func(count int32) {
		t.Helper()
		await(t, fmt.Sprintf("%d streams", count), func(context.Context) error {
			if open := handler.streams.Load(); open != count {
				return fmt.Errorf("%d are open", open)
			}
			return nil
		})
	}
	for _, signal := range []os.Signal{os.Interrupt, os.Kill} {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		command := akriCommand(ctx, "try", "e2eTry", "--node="+node.Name(), "--timeout=5m")
		stderr, err := command.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, command.Start())
		text := bufio.NewReader(stderr)
		line, err := text.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "waiting for 1 of 1 nodes: "+node.Name()+"\n", line)
		awaitStreams(1)
		require.NoError(t, command.Process.Signal(signal))
		if signal == os.Interrupt {
			line, err = text.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "error: interrupted\n", line)
		}
		require.Error(t, command.Wait())
		awaitStreams(0)
	}
	results, err := try(t.Context(), "e2eTry", "--node="+node.Name(), "--timeout=20s") // enough to connect, on a loaded machine too
	require.ErrorContains(t, err, "no node has sent a list of devices")
	require.Contains(t, problem(t, results, trial.NoList), "has sent no list")
	awaitStreams(0)
}
