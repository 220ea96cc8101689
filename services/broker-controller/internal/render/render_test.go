package render_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/render"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, object any) {
	t.Helper()
	got, err := yaml.Marshal(object)
	require.NoError(t, err)
	path := filepath.Join("testdata", name+".golden.yaml")
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func configuration(t *testing.T, name string) *akriv0.Configuration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	require.NoError(t, err)
	var c akriv0.Configuration
	require.NoError(t, yaml.UnmarshalStrict(text, &c))
	return &c
}

func instance(configuration *akriv0.Configuration, shared bool) *akriv0.Instance {
	return &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: configuration.Name + "-8120fe", Namespace: configuration.Namespace, UID: "instance-uid"},
		Spec:       akriv0.InstanceSpec{ConfigurationName: configuration.Name, Shared: shared, Capacity: 2, Nodes: []string{"node.a"}},
	}
}

func TestRenderedObjects(t *testing.T) {
	pods, jobs := configuration(t, "pods"), configuration(t, "jobs")
	before := pods.DeepCopy()
	shared, local := instance(pods, true), instance(pods, false)
	golden(t, "shared-pod", render.Pod(shared, "node.a", pods.Spec.BrokerSpec, 0))
	golden(t, "local-pod", render.Pod(local, "node.a", pods.Spec.BrokerSpec, 3))
	golden(t, "job", render.Job(instance(jobs, true), 7, jobs.Spec.BrokerSpec.BrokerJobSpec))
	golden(t, "instance-service", render.InstanceService(shared, &pods.Spec))
	golden(t, "configuration-service", render.ConfigurationService(pods))
	require.Equal(t, before, pods, "the user's spec changed")
}

func TestEveryNodeSelectorTermIsPinned(t *testing.T) {
	field := func(nodes ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: nodes}
	}
	fast := corev1.NodeSelectorRequirement{Key: "fast", Operator: corev1.NodeSelectorOpExists}
	type terms = []corev1.NodeSelectorTerm
	pinned := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{field("target")}}
	for name, c := range map[string]struct{ user, want terms }{
		"none":             {nil, terms{pinned}},
		"labels":           {terms{{MatchExpressions: []corev1.NodeSelectorRequirement{fast}}}, terms{{MatchExpressions: []corev1.NodeSelectorRequirement{fast}, MatchFields: pinned.MatchFields}}},
		"another node":     {terms{{MatchFields: []corev1.NodeSelectorRequirement{field("other")}}}, terms{{MatchFields: []corev1.NodeSelectorRequirement{field("other"), field("target")}}}},
		"two alternatives": {terms{pinned, {MatchExpressions: []corev1.NodeSelectorRequirement{fast}}}, terms{{MatchFields: []corev1.NodeSelectorRequirement{field("target"), field("target")}}, {MatchExpressions: []corev1.NodeSelectorRequirement{fast}, MatchFields: pinned.MatchFields}}},
		"an empty term":    {terms{{}}, terms{{}}},
	} {
		spec := &corev1.PodSpec{NodeName: "other", Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: c.user},
		}}}
		pod := render.Pod(&akriv0.Instance{}, "target", &akriv0.BrokerSpec{BrokerPodSpec: spec}, 0)
		require.Equal(t, c.want, pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, name)
		require.Empty(t, pod.Spec.NodeName, name)
	}
}

func TestLongNamesAreShortened(t *testing.T) {
	long := strings.Repeat("a", 240)
	first := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: long + "-8120fe"}, Spec: akriv0.InstanceSpec{Shared: true}}
	second := &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: long + "-a19705"}, Spec: akriv0.InstanceSpec{Shared: true}}
	node := strings.Repeat("n.", 60) + "x"
	require.Equal(t, render.PodName(first, node), render.PodName(first, node))
	require.NotEqual(t, render.PodName(first, node), render.PodName(second, node))
	require.Empty(t, validation.IsDNS1123Subdomain(render.PodName(first, node)))
	require.Empty(t, validation.IsDNS1123Label(render.JobName(first.Name, 1<<40)))
	require.Empty(t, validation.IsDNS1035Label(render.ServiceName(first.Name)))
	pod := render.Pod(first, node, &akriv0.BrokerSpec{BrokerPodSpec: &corev1.PodSpec{}}, 0)
	for label, value := range pod.Labels {
		require.Empty(t, validation.IsValidLabelValue(value), label)
	}
	// The names must not change between versions.
	for want, got := range map[string]string{
		node + "-" + strings.Repeat("a", 118) + "-cb99748c-pod": render.PodName(first, node),
		strings.Repeat("a", 47) + "-ca88d70f-12-job":            render.JobName(first.Name, 12),
		strings.Repeat("a", 50) + "-ca88d70f-svc":               render.ServiceName(first.Name),
		strings.Repeat("n.", 26) + "n-ed0237a0":                 render.LabelValue(node),
	} {
		require.Equal(t, want, got)
	}
	require.Equal(t, "a-b-svc", render.ServiceName("a.b"))
	require.Equal(t, "node.a-a-b-pod", render.PodName(&akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: "a.b"}, Spec: akriv0.InstanceSpec{Shared: true}}, "node.a"))
	require.True(t, strings.HasSuffix(render.PodName(first, node), "-pod"))
}

func TestHashIgnoresFormatting(t *testing.T) {
	spec := func(text string) *corev1.PodSpec {
		var s corev1.PodSpec
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &s))
		return &s
	}
	require.Equal(t,
		render.Hash(spec(`{containers: [{name: a, resources: {limits: {cpu: "1", memory: 1Gi}}}]}`)),
		render.Hash(spec(`{containers: [{resources: {limits: {memory: 1024Mi, cpu: 1000m}}, name: a}]}`)))
	require.NotEqual(t, render.Hash(spec(`{containers: [{name: a}]}`)), render.Hash(spec(`{containers: [{name: b}]}`)))
}
