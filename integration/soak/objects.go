package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

const (
	namespace = "default"
	// workloadLabel is the label of the Pods of workloads, with the name of their Configuration.
	workloadLabel = "soak.akri.sh/configuration"
	image         = "ghcr.io/akri-mesh/sample-broker:" + mesh.DevTag
	httpDevices   = 2
)

// object returns the Configuration as an API object.
func (c *configuration) object() *akriv0.Configuration {
	capacity := c.capacity
	object := &akriv0.Configuration{
		TypeMeta:   metav1.TypeMeta{APIVersion: akriv0.GroupVersion.String(), Kind: "Configuration"},
		ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: namespace},
		Spec: akriv0.ConfigurationSpec{
			DiscoveryHandler: akriv0.DiscoveryHandler{Name: c.handler, DiscoveryDetails: c.details()},
			Capacity:         &capacity,
			BrokerProperties: map[string]string{nameProperty: c.name, versionProperty: strconv.Itoa(c.version)},
		},
	}
	switch c.broker {
	case podBroker:
		spec := podSpec("{{PLACEHOLDER}}")
		object.Spec.BrokerSpec = &akriv0.BrokerSpec{BrokerPodSpec: &spec}
	case jobBroker:
		spec := podSpec("{{PLACEHOLDER}}", "--once")
		spec.RestartPolicy, spec.Containers[0].ReadinessProbe = corev1.RestartPolicyNever, nil
		backoff := int32(20) // killed nodes make Pods fail
		object.Spec.BrokerSpec = &akriv0.BrokerSpec{BrokerJobSpec: &batchv1.JobSpec{
			BackoffLimit: &backoff, Template: corev1.PodTemplateSpec{Spec: spec},
		}}
	}
	return object
}

func (c *configuration) details() string {
	switch c.handler {
	case "debugEcho":
		text, _ := json.Marshal(c.descriptions()) // strings only
		return fmt.Sprintf("descriptions: %s", text)
	case udevHandler:
		return c.rules()
	case "http":
		return "url: http://127.0.0.1:8000/devices.json"
	}
	return ""
}

// podSpec returns a Pod with one container that uses one device of the resource.
func podSpec(name corev1.ResourceName, args ...string) corev1.PodSpec {
	grace := int64(1)
	one := corev1.ResourceList{name: resource.MustParse("1")}
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: "main", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: args,
			Resources: corev1.ResourceRequirements{Requests: one, Limits: one},
		}},
	}
}

// deployment returns the Deployment of a workload.
func (c *configuration) deployment(w *workload) *appsv1.Deployment {
	requested := c.name
	if w.device != "" {
		requested = c.instance(place{device: w.device})
	}
	labels := map[string]string{"app": w.name, workloadLabel: c.name}
	replicas := int32(w.replicas)
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       podSpec(corev1.ResourceName(akriv0.ResourceName(requested))),
			},
		},
	}
}

// handlerPods is a DaemonSet of handler-http, with its endpoint in the same Pod. If it does not
// run, it has no Pods, because no node has the label.
func handlerPods(run bool) *appsv1.DaemonSet {
	selector := map[string]string{corev1.LabelOSStable: "linux"}
	if !run {
		selector[corev1.LabelOSStable] = "none"
	}
	grace, labels := int64(1), map[string]string{"app": "soak-handler"}
	container := corev1.Container{Image: "ghcr.io/akri-mesh/handler-http:" + mesh.DevTag, ImagePullPolicy: corev1.PullIfNotPresent}
	handler, endpoint := container, container
	handler.Name = "handler"
	handler.VolumeMounts = []corev1.VolumeMount{{Name: "handlers", MountPath: "/var/lib/akri"}}
	endpoint.Name, endpoint.Command = "endpoint", []string{"/bin/file-server", "127.0.0.1:8000", "/devices"}
	endpoint.VolumeMounts = []corev1.VolumeMount{{Name: "devices", MountPath: "/devices"}}
	directory := corev1.HostPathDirectoryOrCreate
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Name: "soak-handler", Namespace: namespace},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace,
					NodeSelector:                  selector,
					Containers:                    []corev1.Container{handler, endpoint},
					Volumes: []corev1.Volume{
						{Name: "handlers", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/akri", Type: &directory}}},
						{Name: "devices", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
							LocalObjectReference: corev1.LocalObjectReference{Name: "soak-devices"},
						}}},
					},
				},
			},
		},
	}
}

// deviceList is the ConfigMap with the list of the endpoint of handler-http.
func deviceList() *corev1.ConfigMap {
	type device struct {
		Name string `json:"name"`
	}
	var list []device
	for _, p := range shared("http", httpDevices) {
		list = append(list, device{p.device})
	}
	text, _ := json.Marshal(list) // strings only
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "soak-devices", Namespace: namespace},
		Data:       map[string]string{"devices.json": string(text)},
	}
}

// apply creates or changes an object, as its only field manager. See write.
func apply[T any](
	ctx context.Context, object metav1.Object,
	patch func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error),
) error {
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", object.GetName(), err)
	}
	force := true
	return write(ctx, object.GetName(), func(ctx context.Context) error {
		_, err := patch(ctx, object.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "soak", Force: &force})
		return err
	})
}
