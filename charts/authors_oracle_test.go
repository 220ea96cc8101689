package charts_test

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// namesOfRender are the names that broker-controller replaces in the names of objects.
var namesOfRender = []string{"$(AKRI_INSTANCE)", "$(AKRI_CONFIGURATION)"}

// rightsOfChange returns the rights that the author of a change of a spec needs, as "verb resource
// namespace name", and the number of Secrets and ConfigMaps among them. It is what the expressions
// of the policy akri-authors must compute. Values of wrong types and names that no object has count
// as absent. A name in which broker-controller replaces a part needs the right to get all objects.
func rightsOfChange(namespace string, old, spec map[string]any) (rights []string, objects int) {
	changed := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return !reflect.DeepEqual(old[part], spec[part]) })
	}
	need := func(right string) {
		if !slices.Contains(rights, right) {
			rights = append(rights, right)
		}
	}
	read := func(resource, namespace string, reference map[string]any, field string) {
		name, _ := reference[field].(string)
		switch {
		case slices.ContainsFunc(namesOfRender, func(replaced string) bool { return strings.Contains(name, replaced) }):
			need("get " + resource + " " + namespace + " ")
		case len(validation.IsDNS1123Subdomain(name)) == 0:
			need("get " + resource + " " + namespace + " " + name)
		}
	}

	if changed("discoveryHandler") {
		handler := object(spec, "discoveryHandler")
		need("use discoveryhandlers " + namespace + " " + handler["name"].(string))
		for _, property := range items(handler, "discoveryProperties") {
			for resource, field := range map[string]string{"secrets": "secretKeyRef", "configmaps": "configMapKeyRef"} {
				reference := object(object(property, "valueFrom"), field)
				of, _ := reference["namespace"].(string)
				read(resource, cmp.Or(of, namespace), reference, "name")
			}
		}
	}

	broker := object(spec, "brokerSpec")
	if !changed("brokerSpec", "brokerProperties") {
		broker = nil
	}
	pod, job := object(broker, "brokerPodSpec"), object(broker, "brokerJobSpec")
	if pod != nil {
		need("create pods " + namespace + " ")
	}
	if job != nil {
		need("create jobs " + namespace + " ")
	}
	for _, pod := range []map[string]any{pod, object(object(job, "template"), "spec")} {
		for _, container := range append(items(pod, "initContainers"), items(pod, "containers")...) {
			for _, variable := range items(container, "env") {
				from := object(variable, "valueFrom")
				read("secrets", namespace, object(from, "secretKeyRef"), "name")
				read("configmaps", namespace, object(from, "configMapKeyRef"), "name")
			}
			for _, from := range items(container, "envFrom") {
				read("secrets", namespace, object(from, "secretRef"), "name")
				read("configmaps", namespace, object(from, "configMapRef"), "name")
			}
		}
		for _, volume := range items(pod, "volumes") {
			read("secrets", namespace, object(volume, "secret"), "secretName")
			read("configmaps", namespace, object(volume, "configMap"), "name")
			for _, source := range items(object(volume, "projected"), "sources") {
				read("secrets", namespace, object(source, "secret"), "name")
				read("configmaps", namespace, object(source, "configMap"), "name")
			}
		}
	}
	for _, right := range rights {
		if right[:3] == "get" {
			objects++
		}
	}

	for _, part := range []string{"instanceServiceSpec", "configurationServiceSpec", "instanceServiceMetadata", "configurationServiceMetadata"} {
		if changed(part) && object(spec, part) != nil {
			need("create services " + namespace + " ")
		}
	}
	return rights, objects
}

// object returns the object in a field, or nil.
func object(parent map[string]any, field string) map[string]any {
	value, _ := parent[field].(map[string]any)
	return value
}

// items returns the objects of the list in a field.
func items(parent map[string]any, field string) (objects []map[string]any) {
	list, _ := parent[field].([]any)
	for _, item := range list {
		if value, ok := item.(map[string]any); ok {
			objects = append(objects, value)
		}
	}
	return objects
}
