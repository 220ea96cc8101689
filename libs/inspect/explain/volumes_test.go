package explain_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"akri.sh/libs/inspect/explain"
)

// hostVolume is a volume of a manifest with a directory of the node.
var hostVolume = regexp.MustCompile(`- name: (\S+)\n\s+hostPath:\n\s+path: (\S+)\n`)

// TestDirectoriesHaveTheirValues requires that the remedy for a directory that the kubelet cannot
// mount is the value of the chart that has it.
func TestDirectoriesHaveTheirValues(t *testing.T) {
	values, tested := hostValues(t), map[string]bool{}
	for _, form := range []string{"defaults", "dra", "agent"} {
		manifests, err := os.ReadFile("../../../charts/testdata/" + form + ".golden.yaml")
		require.NoError(t, err)
		for _, volume := range hostVolume.FindAllStringSubmatch(string(manifests), -1) {
			value := valueOf(values, volume[2])
			if value == "" {
				continue
			}
			command := remedyForVolume(t, volume[1], volume[2])
			require.Contains(t, command, "--set global.host."+value+"=DIRECTORY", volume[1])
			tested[value] = true
		}
	}
	require.Len(t, tested, len(values))
}

// valueOf returns the name of the value with the directory, or with the closest parent that is a
// value.
func valueOf(values map[string]string, directory string) (closest string) {
	for value, parent := range values {
		if strings.HasPrefix(directory+"/", parent+"/") && len(parent) > len(values[closest]) {
			closest = value
		}
	}
	return closest
}

// hostValues returns the directories of nodes, by the names of the chart's values.
func hostValues(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../../charts/akri/values.yaml")
	require.NoError(t, err)
	var values struct {
		Global struct{ Host map[string]string }
	}
	require.NoError(t, yaml.Unmarshal(text, &values))
	require.NotEmpty(t, values.Global.Host)
	return values.Global.Host
}

// remedyForVolume returns the last command for a Pod of which the kubelet cannot mount the volume.
func remedyForVolume(t *testing.T, name, path string) string {
	t.Helper()
	s := load(t, "wrong-kubelet-directory")
	pod := explain.Find(s.Pods, "akri-system", "akri-device-plugin-host-b")
	pod.Spec.Volumes = []corev1.Volume{{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}}
	s.Warnings[0].Message = strings.ReplaceAll(s.Warnings[0].Message, "pod-resources", name)

	e := explain.Configuration(s, "default", "camera")
	remedies := e.Cause().Remedies
	return remedies[len(remedies)-1].Command
}

// TestOverdueUpdates takes a service for incomplete when a Pod of an update has not started in
// time, although as many Pods as desired are ready.
func TestOverdueUpdates(t *testing.T) {
	for name, c := range map[string]struct {
		age     time.Duration
		deleted bool
		state   explain.State
	}{
		"starting": {age: 4 * time.Minute, state: explain.Works},
		"overdue":  {age: 6 * time.Minute, state: explain.Partly},
		"replaced": {age: 6 * time.Minute, deleted: true, state: explain.Works},
	} {
		t.Run(name, func(t *testing.T) {
			s := load(t, "update-not-started")
			for i := range s.Pods {
				if pod := &s.Pods[i]; pod.Name == "akri-discovery-operator-b" {
					pod.CreationTimestamp = metav1.NewTime(s.Now.Add(-c.age))
					if c.deleted {
						pod.DeletionTimestamp = new(metav1.NewTime(s.Now))
					}
				}
			}
			require.Equal(t, c.state, s.ServicesLink().State)
		})
	}
}
