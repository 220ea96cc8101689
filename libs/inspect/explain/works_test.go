package explain_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/libs/inspect/explain"
)

// withouts remove what subjects of the kinds need to work.
var withouts = []struct {
	name   string
	remove func(*explain.Snapshot)
	kinds  []string
}{
	{"without Instances", func(s *explain.Snapshot) { s.Instances = nil }, []string{explain.SubjectDevices, explain.SubjectBrokers}},
	{"without ready nodes", stopNodes, []string{explain.SubjectDevices, "Instance", "Node"}},
	{"without brokers", removeBrokers, []string{explain.SubjectBrokers}},
	{"without nodes that see the devices", func(s *explain.Snapshot) {
		for i := range s.Instances {
			s.Instances[i].Spec.Nodes = nil
		}
	}, []string{explain.SubjectDevices, explain.SubjectBrokers, "Instance"}},
	{"without slots", func(s *explain.Snapshot) {
		for i := range s.Instances {
			s.Instances[i].Spec.Capacity, s.Instances[i].Spec.DeviceUsage = 0, nil
		}
	}, []string{explain.SubjectDevices, explain.SubjectBrokers, "Instance"}},
}

func stopNodes(s *explain.Snapshot) {
	for i := range s.Nodes {
		s.Nodes[i].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	}
}

func removeBrokers(s *explain.Snapshot) {
	s.Jobs = nil
	s.Pods = slices.DeleteFunc(s.Pods, func(pod corev1.Pod) bool {
		owner := metav1.GetControllerOf(&pod)
		return owner != nil && owner.Kind == "Instance"
	})
}

// TestNothingWorksWithoutItsParts removes from each cluster of testdata what subjects need. The
// objects can be older than the status that states otherwise.
func TestNothingWorksWithoutItsParts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		for _, without := range withouts {
			s := load(t, strings.TrimSuffix(filepath.Base(file), ".yaml"))
			without.remove(s)
			for _, e := range explanations(s) {
				for _, link := range e.Links {
					requireComplete(t, link, "%s, %s: %s %s: %s", file, without.name, e.Kind, e.Name, link.Name)
				}
			}
			for _, v := range explain.Verdicts(s) {
				if slices.Contains(without.kinds, v.Subject.Kind) {
					requireComplete(t, linkOf(v), "%s, %s: %v", file, without.name, v.Subject)
					require.NotEqual(t, explain.Works, v.State, "%s, %s: %v: %s", file, without.name, v.Subject, v.Message)
				}
			}
		}
	}
}
