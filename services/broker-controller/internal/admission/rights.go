package admission

import (
	"cmp"
	"reflect"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

const (
	verbCreate = "create"
	verbGet    = "get"
	verbUse    = "use"

	secrets    = "secrets"
	configMaps = "configmaps"
	// handlerResource is a virtual resource, as Kubernetes has for the verb `use`: there are no
	// such objects, only rights on them.
	handlerResource = "discoveryhandlers"
)

// right is a right that the author of a Configuration needs, because Akri acts with it for the
// author.
type right struct {
	// path is the first field that needs the right.
	path       *field.Path
	attributes authorizationv1.ResourceAttributes
}

// rights collects the rights that a spec needs, each once.
type rights struct {
	namespace string
	all       []right
	seen      map[authorizationv1.ResourceAttributes]bool
}

// requiredRights returns the rights that the changes of a spec need. A part that has not changed
// needs none, so that an author with fewer rights can edit the others. In the same way the API
// server checks the paramKind of a ValidatingAdmissionPolicy. old is nil for a new Configuration.
func requiredRights(namespace string, old, object map[string]any, spec *akriv0.ConfigurationSpec) []right {
	r := rights{namespace: namespace, seen: map[authorizationv1.ResourceAttributes]bool{}}
	path := field.NewPath("spec")
	changed := func(names ...string) bool {
		for _, name := range names {
			if old == nil || !reflect.DeepEqual(part(old, name), part(object, name)) {
				return true
			}
		}
		return false
	}
	if changed("discoveryHandler") {
		r.handler(path.Child("discoveryHandler"), &spec.DiscoveryHandler)
	}
	if spec.BrokerSpec != nil && changed("brokerSpec", "brokerProperties") {
		r.broker(path.Child("brokerSpec"), spec.BrokerSpec)
	}
	if spec.InstanceServiceSpec != nil && changed("instanceServiceSpec") {
		r.need(path.Child("instanceServiceSpec"), verbCreate, "", "services", namespace, "")
	}
	if spec.ConfigurationServiceSpec != nil && changed("configurationServiceSpec") {
		r.need(path.Child("configurationServiceSpec"), verbCreate, "", "services", namespace, "")
	}
	return r.all
}

func part(object map[string]any, name string) any {
	spec, _ := object["spec"].(map[string]any)
	return spec[name]
}

func (r *rights) need(path *field.Path, verb, group, resource, namespace, name string) {
	attributes := authorizationv1.ResourceAttributes{
		Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name,
	}
	if !r.seen[attributes] {
		r.seen[attributes] = true
		r.all = append(r.all, right{path, attributes})
	}
}

// read needs the right to get a Secret or a ConfigMap. The API server refuses a reference without a
// name.
func (r *rights) read(path *field.Path, resource, namespace, name string) {
	if name != "" {
		r.need(path, verbGet, "", resource, namespace, name)
	}
}

// handler needs the use of the handler and the objects whose values the handler gets. The details
// decide where the handler sends them.
func (r *rights) handler(path *field.Path, handler *akriv0.DiscoveryHandler) {
	r.need(path.Child("name"), verbUse, akriv0.Group, handlerResource, r.namespace, handler.Name)
	for i, property := range handler.DiscoveryProperties {
		if property.ValueFrom == nil {
			continue
		}
		path := path.Child("discoveryProperties").Index(i).Child("valueFrom")
		if ref := property.ValueFrom.SecretKeyRef; ref != nil {
			r.read(path.Child("secretKeyRef"), secrets, cmp.Or(ref.Namespace, r.namespace), ref.Name)
		}
		if ref := property.ValueFrom.ConfigMapKeyRef; ref != nil {
			r.read(path.Child("configMapKeyRef"), configMaps, cmp.Or(ref.Namespace, r.namespace), ref.Name)
		}
	}
}

func (r *rights) broker(path *field.Path, broker *akriv0.BrokerSpec) {
	if pod := broker.BrokerPodSpec; pod != nil {
		path := path.Child("brokerPodSpec")
		r.need(path, verbCreate, "", "pods", r.namespace, "")
		r.pod(path, pod)
	}
	if job := broker.BrokerJobSpec; job != nil {
		path := path.Child("brokerJobSpec")
		r.need(path, verbCreate, "batch", "jobs", r.namespace, "")
		r.pod(path.Child("template", "spec"), &job.Template.Spec)
	}
}

// pod needs the Secrets and ConfigMaps that become visible in the containers. Who may create Pods
// can mount any of the namespace; Kubernetes does not check them.
func (r *rights) pod(path *field.Path, pod *corev1.PodSpec) {
	for i := range pod.InitContainers {
		r.container(path.Child("initContainers").Index(i), &pod.InitContainers[i])
	}
	for i := range pod.Containers {
		r.container(path.Child("containers").Index(i), &pod.Containers[i])
	}
	for i, volume := range pod.Volumes {
		path := path.Child("volumes").Index(i)
		if volume.Secret != nil {
			r.read(path.Child("secret"), secrets, r.namespace, volume.Secret.SecretName)
		}
		if volume.ConfigMap != nil {
			r.read(path.Child("configMap"), configMaps, r.namespace, volume.ConfigMap.Name)
		}
		if volume.Projected != nil {
			r.projected(path.Child("projected", "sources"), volume.Projected.Sources)
		}
	}
}

func (r *rights) container(path *field.Path, container *corev1.Container) {
	for i, source := range container.EnvFrom {
		path := path.Child("envFrom").Index(i)
		if source.SecretRef != nil {
			r.read(path.Child("secretRef"), secrets, r.namespace, source.SecretRef.Name)
		}
		if source.ConfigMapRef != nil {
			r.read(path.Child("configMapRef"), configMaps, r.namespace, source.ConfigMapRef.Name)
		}
	}
	for i, variable := range container.Env {
		if variable.ValueFrom == nil {
			continue
		}
		path := path.Child("env").Index(i).Child("valueFrom")
		if ref := variable.ValueFrom.SecretKeyRef; ref != nil {
			r.read(path.Child("secretKeyRef"), secrets, r.namespace, ref.Name)
		}
		if ref := variable.ValueFrom.ConfigMapKeyRef; ref != nil {
			r.read(path.Child("configMapKeyRef"), configMaps, r.namespace, ref.Name)
		}
	}
}

func (r *rights) projected(path *field.Path, sources []corev1.VolumeProjection) {
	for i, source := range sources {
		if source.Secret != nil {
			r.read(path.Index(i).Child("secret"), secrets, r.namespace, source.Secret.Name)
		}
		if source.ConfigMap != nil {
			r.read(path.Index(i).Child("configMap"), configMaps, r.namespace, source.ConfigMap.Name)
		}
	}
}
