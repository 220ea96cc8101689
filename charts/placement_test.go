package charts_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"akri.sh/libs/kube/kubetest"
)

// newScheduler starts an API server and kube-scheduler.
func newScheduler(t *testing.T) kubernetes.Interface {
	t.Helper()
	own, err := kubetest.StartWithoutCRDs(t.Context())
	require.NoError(t, err)
	t.Cleanup(own.Stop)
	ctx, stop := context.WithCancel(t.Context())
	scheduler := exec.CommandContext(ctx, binary(t, "kube-scheduler"), "--kubeconfig="+kubeconfigOf(t, own), "--leader-elect=false", "--secure-port=0")
	require.NoError(t, scheduler.Start())
	t.Cleanup(func() { stop(); _ = scheduler.Wait() })
	client, err := kubernetes.NewForConfig(own.Config())
	require.NoError(t, err)
	for _, name := range namespaces {
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return client
}

// ownAffinity are values of a user: replicas must run on different nodes.
var ownAffinity = []string{"--set-json", `instance-writer.affinity={"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
	{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app.kubernetes.io/component":"instance-writer"}}}]}}`}

// TestPlacement checks with kube-scheduler on which nodes the cluster services run.
func TestPlacement(t *testing.T) {
	t.Parallel()
	client := newScheduler(t)
	const separate, agent = "global.separateClusterServices=true", "global.agent.enabled=true"
	for name, c := range map[string]struct {
		values []string
		// Names of nodes with and without node services.
		with, without []string
		// late is whether the node services start after the cluster services.
		late bool
		// want are the nodes with Pods of instance-writer, and nothing for Pods that wait.
		want []string
	}{
		"one node":                      {with: []string{"a"}, want: []string{"a", "a"}},
		"two nodes":                     {with: []string{"a", "b"}, want: []string{"a", "b"}},
		"one of two nodes":              {with: []string{"a"}, without: []string{"b"}, want: []string{"b", "b"}},
		"one of five nodes":             {with: []string{"a", "b", "c", "d"}, without: []string{"e"}, want: []string{"e", "e"}},
		"two of five nodes":             {with: []string{"a", "b", "c"}, without: []string{"d", "e"}, want: []string{"d", "e"}},
		"agent":                         {values: set(agent), with: []string{"a", "b"}, without: []string{"c"}, want: []string{"c", "c"}},
		"services of nodes elsewhere":   {values: set("global.nodePlane.namespace=nodes"), with: []string{"a"}, without: []string{"b"}, want: []string{"b", "b"}},
		"required":                      {values: set(separate), with: []string{"a", "b"}, without: []string{"c"}, want: []string{"c", "c"}},
		"required on two":               {values: set(separate), with: []string{"a"}, without: []string{"b", "c"}, want: []string{"b", "c"}},
		"required and impossible":       {values: set(separate), with: []string{"a", "b"}, want: []string{"", ""}},
		"required of the agent":         {values: set(separate, agent), with: []string{"a"}, want: []string{"", ""}},
		"required elsewhere":            {values: set(separate, "global.nodePlane.namespace=nodes"), with: []string{"a"}, want: []string{"", ""}},
		"required, with values":         {values: slices.Concat(set(separate), ownAffinity), with: []string{"a"}, without: []string{"b"}, want: []string{"", "b"}},
		"values instead of preferences": {values: ownAffinity, with: []string{"a"}, without: []string{"b"}, want: []string{"a", "b"}},
		// The node services take the places of cluster services.
		"required, and node services start late": {values: set(separate), with: []string{"a"}, late: true, want: []string{"", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, client, c.values)
			s.createNodes(slices.Concat(c.with, c.without))
			if c.late {
				s.createClusterServices()
				s.awaitPlaced(slices.Repeat(c.with, 2))
			}
			s.createNodeServices(c.with)
			if c.late {
				s.replaceEvicted()
			} else {
				s.createClusterServices()
			}
			s.awaitPlaced(c.want)
		})
	}
}

// site is a cluster with kube-scheduler and without kubelets and controllers: the test creates the
// Nodes and the Pods of the chart.
type site struct {
	*testing.T
	client      kubernetes.Interface
	daemonSets  []appsv1.DaemonSet
	deployments []appsv1.Deployment
}

func newSite(t *testing.T, client kubernetes.Interface, values []string) site {
	t.Helper()
	rendered, err := render(t, slices.Concat(set("global.resources=dra", "console.enabled=true"), values)...)
	require.NoError(t, err)
	s := site{t, client, decode[appsv1.DaemonSet](t, rendered, "DaemonSet"), decode[appsv1.Deployment](t, rendered, "Deployment")}
	require.Len(t, s.deployments, 4)
	t.Cleanup(func() {
		ctx, now := context.WithoutCancel(t.Context()), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
		for _, namespace := range namespaces {
			require.NoError(t, client.CoreV1().Pods(namespace).DeleteCollection(ctx, now, metav1.ListOptions{}))
		}
		require.NoError(t, client.CoreV1().Nodes().DeleteCollection(ctx, now, metav1.ListOptions{}))
	})
	return s
}

// namespaces are those of the cluster services and of the values of the test.
var namespaces = []string{"akri-system", "nodes"}

func (s site) createNodes(names []string) {
	s.Helper()
	available := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	for _, name := range names {
		node, err := s.client.CoreV1().Nodes().Create(s.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}},
			Status: corev1.NodeStatus{
				Capacity: available, Allocatable: available,
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}, metav1.CreateOptions{})
		require.NoError(s, err)
		node.Spec.Taints = nil // A controller removes the taint of a new Node.
		_, err = s.client.CoreV1().Nodes().Update(s.Context(), node, metav1.UpdateOptions{})
		require.NoError(s, err)
	}
}

// createNodeServices creates the Pods of the DaemonSets on the nodes and waits until they are
// placed.
func (s site) createNodeServices(nodes []string) {
	s.Helper()
	for _, d := range s.daemonSets {
		for _, node := range nodes {
			template := d.Spec.Template.DeepCopy()
			// The Pods of a controller of DaemonSets have no other node.
			template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
				}}},
			}}}
			delete(template.Spec.NodeSelector, "akri.sh/resources")
			s.create(d.Namespace, d.Name+"-"+node, *template)
		}
	}
	s.eventually(func(c *assert.CollectT) {
		for _, pod := range s.running(c) {
			require.True(c, pod.Spec.NodeName != "" || s.isOfDeployment(pod), "%s is not placed: %v", pod.Name, pod.Status.Conditions)
		}
	})
}

func (s site) createClusterServices() {
	s.Helper()
	for _, d := range s.deployments {
		for i := range *d.Spec.Replicas {
			s.create(d.Namespace, fmt.Sprintf("%s-%d", d.Name, i), d.Spec.Template)
		}
	}
}

func (s site) create(namespace, name string, template corev1.PodTemplateSpec) {
	s.Helper()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = name
	_, err := s.client.CoreV1().Pods(namespace).Create(s.Context(), pod, metav1.CreateOptions{})
	require.NoError(s, err)
}

// running returns the Pods, and removes those that kube-scheduler has evicted, as a kubelet does.
func (s site) running(c *assert.CollectT) (pods []corev1.Pod) {
	for _, namespace := range namespaces {
		client := s.client.CoreV1().Pods(namespace)
		list, err := client.List(s.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		for _, pod := range list.Items {
			if pod.DeletionTimestamp == nil {
				pods = append(pods, pod)
			} else {
				require.NoError(c, client.Delete(s.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
			}
		}
	}
	return pods
}

// replaceEvicted waits until all Pods of the cluster services are evicted, and creates them again.
func (s site) replaceEvicted() {
	s.Helper()
	s.eventually(func(c *assert.CollectT) {
		for _, pod := range s.running(c) {
			require.False(c, s.isOfDeployment(pod), "%s is not evicted", pod.Name)
		}
	})
	s.createClusterServices()
}

func (s site) isOfDeployment(pod corev1.Pod) bool {
	return slices.ContainsFunc(s.deployments, func(d appsv1.Deployment) bool {
		return d.Spec.Template.Labels["app.kubernetes.io/component"] == pod.Labels["app.kubernetes.io/component"]
	})
}

// awaitPlaced waits until the Pods of instance-writer are on the nodes, and those of the other
// cluster services on some of them. A Pod that cannot be placed is on the node "".
func (s site) awaitPlaced(want []string) {
	s.Helper()
	s.eventually(func(c *assert.CollectT) {
		placed := map[string][]string{}
		for _, pod := range s.running(c) {
			if !s.isOfDeployment(pod) {
				continue
			}
			unschedulable := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
				return condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable
			})
			require.True(c, pod.Spec.NodeName != "" || unschedulable, "%s is not placed yet", pod.Name)
			component := pod.Labels["app.kubernetes.io/component"]
			placed[component] = append(placed[component], pod.Spec.NodeName)
		}
		require.Len(c, placed, len(s.deployments))
		for component, nodes := range placed {
			if component == "instance-writer" {
				require.ElementsMatch(c, want, nodes)
			} else {
				require.Subset(c, want, nodes, component)
			}
		}
	})
}

func (s site) eventually(check func(*assert.CollectT)) {
	s.Helper()
	require.EventuallyWithT(s, check, time.Minute, 50*time.Millisecond)
}

// TestNotesOfPlacement checks that the notes of a release state where the cluster services run.
func TestNotesOfPlacement(t *testing.T) {
	require.Contains(t, notes(t), "who controls a node with cluster services can act as them")
	separate := notes(t, set("global.separateClusterServices=true")...)
	require.Contains(t, separate, "start only on nodes without node services")
	require.NotContains(t, separate, "can act as them")
}
