package explain_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
)

// forgedText has all texts of Kubernetes that rules look for in Events.
const forgedText = `forged: MountVolume.SetUp failed for volume "device-plugins": exceeded quota: violates PodSecurity: ` +
	`maximum memory usage per Container is 1Mi`

// phases change the state of the Pods, one after the other.
var phases = []struct {
	name   string
	change func(*explain.Snapshot)
}{
	{"as in the file", func(*explain.Snapshot) {}},
	{"Pods of users start", func(s *explain.Snapshot) {
		start(s, func(pod *corev1.Pod) bool { return !explain.IsAkri(pod) })
	}},
	{"all Pods start", func(s *explain.Snapshot) {
		start(s, func(*corev1.Pod) bool { return true })
		stopServices(s)
	}},
	{"Pods on node-b have no image", func(s *explain.Snapshot) {
		noImage := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}
		for i := range s.Pods {
			if s.Pods[i].Spec.NodeName == "node-b" {
				s.Pods[i].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: noImage}}
			}
		}
	}},
	{"Akri has no Pods", func(s *explain.Snapshot) {
		s.Pods = slices.DeleteFunc(s.Pods, func(pod corev1.Pod) bool { return explain.IsAkri(&pod) })
	}},
}

// start makes Pods those that the kubelet has just accepted.
func start(s *explain.Snapshot, which func(*corev1.Pod) bool) {
	for i := range s.Pods {
		if pod := &s.Pods[i]; pod.Spec.NodeName != "" && which(pod) {
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
		}
	}
}

func stopServices(s *explain.Snapshot) {
	for i := range s.DaemonSets {
		s.DaemonSets[i].Status.NumberReady = 0
	}
	for i := range s.Deployments {
		s.Deployments[i].Status = appsv1.DeploymentStatus{}
	}
}

// Many users may write Events. So forged Events about all objects change the state of no subject,
// in any cluster of testdata, also while its objects are five seconds old. They can name a cause of
// a subject that does not work or is not complete yet, because the kubelet and the DaemonSet
// controller state some causes nowhere else. Nothing changes on subjects of which nothing is wrong.
func TestForgedEventsAreEvidenceOnly(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	reasons := readReasons(t)
	named := map[explain.CauseID]bool{}
	for _, file := range files {
		s := load(t, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		for _, phase := range phases {
			phase.change(s)
			for _, now := range []time.Time{fixture.Now, fixture.Now.Add(5*time.Second - time.Hour)} {
				before, after := *s, *s // each with an index of its own
				before.Now, after.Now = now, now
				forge(&after, reasons)
				what := file + ", " + phase.name + ", " + now.String()
				requireEvidenceOnly(t, what, allVerdicts(&before), allVerdicts(&after), named)
			}
		}
	}
	for _, id := range []explain.CauseID{explain.VolumeNotMounted, explain.PodsNotCreated, explain.ClaimNotPrepared} {
		require.True(t, named[id], "no forged Event names %s", id)
	}
}

// requireEvidenceOnly compares verdicts, and adds the causes that the later ones name first.
func requireEvidenceOnly(t *testing.T, what string, before, after map[akriv0.Subject]explain.Verdict, named map[explain.CauseID]bool) {
	t.Helper()
	require.Len(t, after, len(before), what)
	for subject, v := range after {
		earlier := before[subject]
		require.Equal(t, earlier.State, v.State, "%s: %v: %s", what, subject, v.Summary())
		switch v.State {
		case explain.Works, explain.Skipped, explain.NoneFound, explain.OutOfService:
			require.Equal(t, earlier, v, what)
			continue
		}
		for _, cause := range v.Causes {
			if slices.ContainsFunc(earlier.Causes, func(c explain.Cause) bool { return c.ID == cause.ID && c.Message == cause.Message }) {
				continue
			}
			named[cause.ID] = true
			if cause.Subject != nil {
				require.NotEqual(t, explain.Works, before[*cause.Subject].State, "%s: %v: %v", what, subject, cause)
			}
		}
	}
}

// allVerdicts returns also the verdicts on the Pods of Akri.
func allVerdicts(s *explain.Snapshot) map[akriv0.Subject]explain.Verdict {
	found := map[akriv0.Subject]explain.Verdict{}
	all := explain.Verdicts(s)
	for i := range s.Pods {
		all = append(all, explain.Pod(s, s.Pods[i].Namespace, s.Pods[i].Name).Verdicts...)
	}
	for _, v := range all {
		found[v.Subject] = v
	}
	return found
}

// forge adds Warnings about all objects with all reasons, to both lists of Events.
func forge(s *explain.Snapshot, reasons []string) {
	var events []corev1.Event
	about := func(kind string, object metav1.Object) {
		for _, reason := range reasons {
			event := corev1.Event{
				Type: corev1.EventTypeWarning, Reason: reason, Message: forgedText, LastTimestamp: metav1.NewTime(s.Now),
				InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()},
			}
			event.Namespace, event.Name = object.GetNamespace(), kind+"."+object.GetName()+"."+reason
			events = append(events, event)
		}
	}
	for i := range s.Pods {
		about("Pod", &s.Pods[i])
	}
	for i := range s.Configurations {
		about("Configuration", &s.Configurations[i])
	}
	for i := range s.Instances {
		about("Instance", &s.Instances[i])
	}
	for i := range s.Nodes {
		about("Node", &s.Nodes[i])
	}
	for i := range s.DaemonSets {
		about("DaemonSet", &s.DaemonSets[i])
	}
	for i := range s.Deployments {
		about("Deployment", &s.Deployments[i])
		replicas := s.Deployments[i].ObjectMeta
		replicas.Name += "-abc"
		about("ReplicaSet", &replicas)
	}
	s.Warnings, s.Unprepared = slices.Concat(s.Warnings, events), slices.Concat(s.Unprepared, events)
}

// readReasons returns the reasons of the Events that the package reads.
func readReasons(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	reasons := []string{explain.ReasonUnprepared}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(node ast.Node) bool {
			call, isCall := node.(*ast.CallExpr)
			if !isCall {
				return true
			}
			if called, is := call.Fun.(*ast.Ident); is && called.Name == "newestEvent" {
				reason, err := strconv.Unquote(call.Args[1].(*ast.BasicLit).Value)
				require.NoError(t, err, "the reason is not a constant")
				reasons = append(reasons, reason)
			}
			return true
		})
	}
	require.Greater(t, len(reasons), 1)
	return reasons
}

// A Pod whose node reports in an Event that it cannot prepare a claim waits as long as any other
// Pod, and states the cause meanwhile.
func TestCauseOfAnEventIsStatedWhileThePodWaits(t *testing.T) {
	s := load(t, "dra-claim-not-prepared")
	explain.Find(s.Pods, "default", "viewer").CreationTimestamp = metav1.NewTime(s.Now.Add(-time.Minute))
	e := explain.Pod(s, "default", "viewer")
	require.Equal(t, explain.Waiting, e.Decisive().State)
	require.Equal(t, explain.ClaimNotPrepared, e.Cause().ID)
	require.Equal(t, s.Now.Add(4*time.Minute), e.Verdicts[0].Wait.Until.Time)
}
