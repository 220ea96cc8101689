package explain_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
	"akri.sh/libs/inspect/selector"
)

var update = flag.Bool("update", false, "write the golden files and the table of causes")

func explainObject(s *explain.Snapshot, kind, name string) explain.Explanation {
	switch kind {
	case "configuration":
		return explain.Configuration(s, "default", name)
	case "instance":
		return explain.Instance(s, "default", name)
	default:
		return explain.Pod(s, "default", name)
	}
}

// load returns a healthy cluster with the differences of the file. Files of Dynamic Resource
// Allocation are differences to dra.yaml.
func load(t *testing.T, file string) *explain.Snapshot {
	t.Helper()
	files := []string{"testdata/healthy.yaml"}
	if strings.HasPrefix(file, "dra") {
		files = append(files, "testdata/dra.yaml")
	}
	s := fixture.Load(t, append(files, filepath.Join("testdata", file+".yaml"))...)
	s.Selectors = selector.New()
	return s
}

// expected is a line of a file in testdata. The file has the differences to a healthy cluster. The
// line states what is explained, and the link with its state and cause, or OK if all links work:
//
//	# explain: pod waiting: Pod scheduled: Broken: CapacityUsed
var expected = regexp.MustCompile(`(?m)^# explain: (\w+) ([\w-]+): (?:OK|(.+): (Works|Broken|Partly|NoneFound|Waiting|OutOfService): ([\w-]+))$`)

// TestCauses compares the explanations of all files in testdata with their golden files, which have
// all links and remedies.
func TestCauses(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	tested := map[explain.CauseID]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		cases := expected.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, cases, "%s: begin the file with a line as the comment of `expected` describes", file)
		for _, c := range cases {
			t.Run(name+"/"+c[1], func(t *testing.T) {
				e := explainObject(load(t, name), c[1], c[2])
				golden(t, name+"."+c[1], e)
				checkLinks(t, e, c[3], explain.State(c[4]), explain.CauseID(c[5]))
			})
			tested[explain.CauseID(c[5])] = true
		}
	}
	for id := range documented(t) {
		require.True(t, tested[id] || notRules[id], "no file in testdata has the cause %s", id)
	}
}

// notRules are the causes that no file in testdata can have: the object does not exist, or Akri is
// not installed. Other tests have them.
var notRules = map[explain.CauseID]bool{explain.NotFound: true, explain.NotInstalled: true}

// none is the cause of a link that waits or is out of service.
const none = "-"

// checkLinks requires the link to have the state and the cause, and no other link to be broken.
// Without a link, all must be OK.
func checkLinks(t *testing.T, e explain.Explanation, name string, state explain.State, id explain.CauseID) {
	t.Helper()
	if name == "" {
		for _, link := range e.Links {
			require.Equal(t, explain.Works, link.State, link.Name)
		}
		return
	}

	for _, link := range e.Links {
		if link.Name != name {
			require.False(t, link.State == explain.Broken && state == explain.Partly, link.Name)
			continue
		}
		require.Equal(t, state, link.State)
		if id == none {
			require.Empty(t, link.Causes)
			require.True(t, state == explain.OutOfService || link.Wait != nil)
			return
		}
		require.Equal(t, id, link.Causes[0].ID)
		require.NotEmpty(t, link.Causes[0].Remedies)
		if state == explain.Broken {
			require.Equal(t, name, e.Broken().Name)
		}
		return
	}
	require.Fail(t, "no such link", name)
}

// TestVerdicts compares the verdicts that are not Works or Skipped with verdicts.golden.
func TestVerdicts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	var text strings.Builder
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		fmt.Fprintln(&text, name)
		for _, v := range explain.Verdicts(load(t, name)) {
			requireConsistent(t, v)
			if v.State == explain.Works || v.State == explain.Skipped {
				continue
			}
			fmt.Fprintf(&text, "  %s %s: %s: ", v.Subject.Kind, v.Subject.Name, v.State)
			if len(v.Causes) > 0 {
				fmt.Fprintf(&text, "%s: ", v.Causes[0].ID)
			}
			fmt.Fprintln(&text, v.Message)
		}
	}
	fixture.Golden(t, "testdata/verdicts.golden", text.String(), *update)
}

// stops matches commands that can stop or restart something.
var stops = regexp.MustCompile(`\b(delete|forget|uninstall|restart|drain|cordon)\b`)

// restartsNothing has the remedies with `helm upgrade` after which no Pod has another spec.
var restartsNothing = map[string]string{
	"Let Helm create what is missing.":                       "no value changes",
	"If the ConfigMap does not exist, let Helm create it.":   "no value changes",
	"Enable the handler.":                                    "the value adds a DaemonSet",
	"Install the CustomResourceDefinitions of this version.": "the chart has no workloads",
}

// A command that stops or restarts something states what, and comes after those that do not. Only a
// Pod that has ended is deleted without an interruption.
func TestRemediesStateWhatTheyInterrupt(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	interrupting, upgrades := 0, map[bool]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		s := load(t, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		for _, cause := range causesOf(s, expected.FindAllStringSubmatch(string(text), -1)) {
			interrupts := false
			for _, remedy := range cause.Remedies {
				what := fmt.Sprintf("%s: %s: %s: %s", file, cause.ID, remedy.Text, remedy.Command)
				require.False(t, interrupts && len(remedy.Interrupts) == 0, "%s comes after one that interrupts", what)
				interrupts = len(remedy.Interrupts) > 0
				isEnded := slices.ContainsFunc(s.Pods, func(pod corev1.Pod) bool {
					return pod.Status.Phase == corev1.PodFailed && strings.HasPrefix(remedy.Command, "kubectl delete pod "+pod.Name+" ")
				})
				isStopping := stops.MatchString(remedy.Command) && !isEnded
				if strings.HasPrefix(remedy.Command, "helm upgrade ") {
					isStopping = restartsNothing[remedy.Text] == ""
					upgrades[isStopping]++
				}
				require.Equal(t, isStopping, interrupts, what)
				interrupting += len(remedy.Interrupted())
			}
		}
	}
	require.NotZero(t, interrupting)
	require.NotZero(t, upgrades[true])
	require.NotZero(t, upgrades[false])
}

// The last lines of the log of a container can have secrets. They are evidence, which conditions
// and metrics do not have, and never part of a message.
func TestLogsAreNotInMessages(t *testing.T) {
	const secret = "password=hunter2"
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	ended := 0
	for _, file := range files {
		s := load(t, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		for i := range s.Pods {
			status := &s.Pods[i].Status
			for _, containers := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
				for j := range containers {
					for _, state := range []*corev1.ContainerState{&containers[j].State, &containers[j].LastTerminationState} {
						if state.Terminated != nil {
							state.Terminated.Message = secret
							ended++
						}
					}
				}
			}
		}
		for _, verdict := range explain.Verdicts(s) {
			require.NotContains(t, verdict.Message+verdict.Summary(), secret, file)
			for _, cause := range verdict.Causes {
				require.NotContains(t, cause.Message, secret, file)
			}
		}
	}
	require.NotZero(t, ended)
}

// Without an evaluation of selectors nothing follows from them.
func TestSelectorsAreNotEvaluated(t *testing.T) {
	s := load(t, "dra-no-device-selected")
	s.Selectors = nil
	e := explain.Pod(s, "default", "viewer")
	require.Equal(t, explain.Unschedulable, e.Cause().ID)
}

func TestMissingObjects(t *testing.T) {
	s := fixture.Load(t, "testdata/healthy.yaml")
	for _, kind := range []string{"configuration", "instance", "pod"} {
		e := explainObject(s, kind, "absent")
		require.Equal(t, explain.NotFound, e.Cause().ID, kind)
	}
	e := explain.Configuration(s, "other", "camera")
	require.Contains(t, e.Cause().Message, "there is one in the namespace default")
}

// Nothing follows from objects that the user may not list.
func TestUnreadable(t *testing.T) {
	s := fixture.Load(t, "testdata/healthy.yaml")
	s.Nodes, s.Pods, s.DaemonSets, s.Deployments = nil, nil, nil, nil
	s.Unreadable = []string{"nodes", "pods", "daemonsets", "deployments"}
	e := explain.Configuration(s, "default", "camera")
	require.Nil(t, e.Broken())
}

// An explanation names the nodes with slots that no Pod uses, and none if it does not know all
// Pods.
func TestSlotsWithoutPods(t *testing.T) {
	slots := func(change func(*explain.Snapshot)) string {
		s := load(t, "broker-refused")
		change(s)
		for _, link := range explain.Instance(s, "default", "camera-8120fe").Links {
			if link.Name == explain.LinkSlots {
				return link.Message
			}
		}
		return ""
	}

	const unused = "; no Pod uses those of node-a, node-b"
	require.Equal(t, "2 of 2 held, by node-a, node-b"+unused, slots(func(*explain.Snapshot) {}))
	require.NotContains(t, slots(func(s *explain.Snapshot) { s.Unreadable = []string{"pods"} }), unused)
	require.NotContains(t, slots(func(s *explain.Snapshot) { s.OneNamespace = true }), unused)
}

func TestNotInstalled(t *testing.T) {
	e := explain.Configuration(&explain.Snapshot{}, "default", "camera")
	require.Equal(t, explain.NotInstalled, e.Cause().ID)
}

// A node reports problems, so their texts must not get into commands.
func TestRemediesFollowFromTheSpec(t *testing.T) {
	s := load(t, "secret-right-missing")
	for i := range s.Configurations[0].Status.Nodes {
		problem := &s.Configurations[0].Status.Nodes[i].Problems[0]
		problem.Subject.Name = "other"
		problem.Message = "grant the right with: kubectl create clusterrolebinding x --clusterrole=cluster-admin --user=y"
	}
	e := explain.Configuration(s, "default", "camera")
	require.Equal(t, explain.SecretRightMissing, e.Cause().ID)
	for _, remedy := range e.Cause().Remedies {
		require.Empty(t, remedy.Command)
	}
}

// Authors and nodes can choose names that a shell would execute.
func TestCommandsHavePlainNames(t *testing.T) {
	const hostile = "camera-login$(reboot)"
	s := load(t, "secret-right-missing")
	s.Configurations[0].Spec.DiscoveryHandler.DiscoveryProperties[0].ValueFrom.SecretKeyRef.Name = hostile
	for i := range s.Configurations[0].Status.Nodes {
		s.Configurations[0].Status.Nodes[i].Problems[0].Subject.Name = hostile
	}
	requireNoCommandWith(t, s, "reboot")

	s = load(t, "misspelt-handler")
	s.Configurations[0].Spec.DiscoveryHandler.Name = "a-long-name-of-a-handler"
	for i := range s.Configurations[0].Status.Nodes {
		s.Configurations[0].Status.Nodes[i].Problems[0].Evidence = []string{"a-long-name-of-a';reboot;"}
	}
	requireNoCommandWith(t, s, "reboot")
}

func requireNoCommandWith(t *testing.T, s *explain.Snapshot, text string) {
	t.Helper()
	e := explain.Configuration(s, "default", "camera")
	require.NotEmpty(t, e.Cause().Remedies)
	for _, remedy := range e.Cause().Remedies {
		require.NotContains(t, remedy.Command, text)
	}
}

func golden(t *testing.T, name string, value any) {
	t.Helper()
	text, err := yaml.Marshal(value)
	require.NoError(t, err)
	fixture.Golden(t, filepath.Join("testdata", name+".golden"), string(text), *update)
}

// No alert reads the verdicts on handlers and nodes, because one on the devices or the brokers of a
// Configuration, on services or on reports of nodes fires when they do not work (docs/runbook.md).
// Only a handler or a node that nothing uses has no alert.
func TestHandlersAndNodesDoNotFailAlone(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	failed := map[string]int{}
	for _, file := range files {
		s := load(t, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		isAlerted, failing := false, []explain.Verdict{}
		for _, v := range explain.Verdicts(s) {
			switch isFailing := v.State == explain.Broken || v.State == explain.Partly; {
			case !isFailing:
			case v.Subject.Kind == akriv0.SubjectHandler || v.Subject.Kind == "Node":
				failing = append(failing, v)
			default:
				isAlerted = isAlerted || slices.Contains([]string{explain.SubjectDevices, explain.SubjectBrokers, "DaemonSet", "Deployment"}, v.Subject.Kind)
			}
		}
		for i := range s.Configurations {
			isAlerted = isAlerted || meta.IsStatusConditionFalse(s.Configurations[i].Status.Conditions, akriv0.ConditionNodesReporting)
		}
		for _, v := range failing {
			require.True(t, isAlerted, "%s: only %v does not work: %s", file, v.Subject, v.Summary())
			failed[v.Subject.Kind]++
		}
	}
	require.NotZero(t, failed[akriv0.SubjectHandler])
	require.NotZero(t, failed["Node"])
}
