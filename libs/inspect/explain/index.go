package explain

import (
	"cmp"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// index finds objects of a Snapshot that verdicts on many devices look up.
type index struct {
	nodes map[string]*corev1.Node
	// akriPods are the Pods of Akri by node, servicePods those by namespace/component.
	akriPods       map[string][]*corev1.Pod
	servicePods    map[string][]*corev1.Pod
	configurations map[string]*akriv0.Configuration
	// instances by their Configuration, and brokers by their Instance: namespace/name.
	instances map[string][]*akriv0.Instance
	brokers   map[string][]*corev1.Pod
	// ofResource are the Instances by the name of the resource that stands for them.
	ofResource map[string][]*akriv0.Instance
	// services, devices and discovery are what was found before, because many verdicts depend on
	// each.
	services  []Service
	devices   map[*akriv0.Instance]Link
	discovery map[*akriv0.Configuration][]Link
}

// indexed returns the index, which is made at the first use: the objects of a Snapshot do not
// change after that.
func (s *Snapshot) indexed() *index {
	if s.index != nil {
		return s.index
	}
	s.index = &index{
		nodes: map[string]*corev1.Node{}, akriPods: map[string][]*corev1.Pod{}, servicePods: map[string][]*corev1.Pod{},
		configurations: map[string]*akriv0.Configuration{}, instances: map[string][]*akriv0.Instance{}, brokers: map[string][]*corev1.Pod{},
		ofResource: map[string][]*akriv0.Instance{}, devices: map[*akriv0.Instance]Link{}, discovery: map[*akriv0.Configuration][]Link{},
	}
	for i := range s.Nodes {
		s.index.nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	for i := range s.Configurations {
		s.index.configurations[s.Configurations[i].Namespace+"/"+s.Configurations[i].Name] = &s.Configurations[i]
	}
	for _, instance := range Where(s.Instances, func(*akriv0.Instance) bool { return true }) {
		key := instance.Namespace + "/" + instance.Spec.ConfigurationName
		s.index.instances[key] = append(s.index.instances[key], instance)
		s.index.addResource(instance)
	}
	for _, pod := range Where(s.Pods, func(*corev1.Pod) bool { return true }) {
		if IsAkri(pod) {
			s.index.akriPods[pod.Spec.NodeName] = append(s.index.akriPods[pod.Spec.NodeName], pod)
			component := pod.Namespace + "/" + pod.Labels[ComponentLabel]
			s.index.servicePods[component] = append(s.index.servicePods[component], pod)
		}
		if owner := instanceOf(s.Jobs, pod); owner != "" {
			key := pod.Namespace + "/" + owner
			s.index.brokers[key] = append(s.index.brokers[key], pod)
		}
	}
	return s.index
}

// addResource adds the names of the resources that stand for the Instance: its own, and that of its
// Configuration.
func (i *index) addResource(instance *akriv0.Instance) {
	name, configuration := instance.Name, instance.Spec.ConfigurationName
	i.ofResource[name] = append(i.ofResource[name], instance)
	if configuration != name {
		i.ofResource[configuration] = append(i.ofResource[configuration], instance)
	}
}

// instanceOf returns the name of the Instance whose broker the Pod is, or nothing. The Pods of Jobs
// are brokers, too.
func instanceOf(jobs []batchv1.Job, pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	if owner != nil && owner.Kind == "Job" {
		job := Find(jobs, pod.Namespace, owner.Name)
		owner = metav1.GetControllerOf(cmp.Or(job, &batchv1.Job{}))
	}
	if owner == nil || owner.Kind != "Instance" {
		return ""
	}
	return owner.Name
}

func (s *Snapshot) nodeNamed(name string) *corev1.Node { return s.indexed().nodes[name] }

// InstancesOf returns the Instances of the Configuration, by name.
func (s *Snapshot) InstancesOf(c *akriv0.Configuration) []*akriv0.Instance {
	return s.indexed().instances[c.Namespace+"/"+c.Name]
}

// configurationOf returns the Configuration of the Instance, or nil.
func (s *Snapshot) configurationOf(instance *akriv0.Instance) *akriv0.Configuration {
	return s.indexed().configurations[instance.Namespace+"/"+instance.Spec.ConfigurationName]
}

// BrokersOf returns the broker Pods of the Instance, also those of Jobs, by name.
func (s *Snapshot) BrokersOf(instance *akriv0.Instance) []*corev1.Pod {
	return s.indexed().brokers[instance.Namespace+"/"+instance.Name]
}
