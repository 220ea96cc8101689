package admission

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/render"
)

const (
	minCapacity = 1
	maxCapacity = 1000
	// digestLength is that of the part of an Instance's name after the Configuration's.
	digestLength = len("-8120fe")
)

// checker collects what is wrong with a spec beyond its types.
type checker struct {
	problems field.ErrorList
	warnings []string
}

func (c *checker) refuse(problem *field.Error) { c.problems = append(c.problems, problem) }

func (c *checker) warn(path *field.Path, format string, arguments ...any) {
	c.warnings = append(c.warnings, path.String()+": "+fmt.Sprintf(format, arguments...))
}

// name must leave room for what is made of it: a kubelet refuses a longer resource.
func (c *checker) name(name string) {
	if limit := validation.LabelValueMaxLength - digestLength; len(name) > limit {
		c.refuse(field.TooLong(field.NewPath("metadata", "name"), name, limit))
	}
}

func (c *checker) spec(path *field.Path, spec *akriv0.ConfigurationSpec) {
	if spec.DiscoveryHandler.Name == "" {
		c.refuse(field.Required(path.Child("discoveryHandler", "name"), "the Discovery Handler that finds the devices"))
	}
	capacity := spec.CapacityOrDefault()
	if capacity < minCapacity || capacity > maxCapacity {
		c.refuse(field.Invalid(path.Child("capacity"), capacity, fmt.Sprintf("must be from %d to %d", minCapacity, maxCapacity)))
	}
	if spec.BrokerSpec != nil {
		c.broker(path.Child("brokerSpec"), spec.BrokerSpec, int64(capacity))
	}
}

func (c *checker) broker(path *field.Path, broker *akriv0.BrokerSpec, capacity int64) {
	pod, job := broker.BrokerPodSpec, broker.BrokerJobSpec
	switch {
	case pod != nil && job != nil:
		c.refuse(field.Forbidden(path, "set exactly one of brokerPodSpec and brokerJobSpec"))
	case pod == nil && job == nil:
		c.refuse(field.Required(path, "set exactly one of brokerPodSpec and brokerJobSpec"))
	}
	if pod != nil {
		c.pod(path.Child("brokerPodSpec"), pod, capacity)
		c.metadata(path.Child("brokerPodMetadata"), broker.BrokerPodMetadata)
	}
	if job != nil {
		c.job(path.Child("brokerJobSpec"), job, capacity)
	}
}

func (c *checker) job(path *field.Path, job *batchv1.JobSpec, capacity int64) {
	if job.TTLSecondsAfterFinished != nil {
		c.warn(path.Child("ttlSecondsAfterFinished"), "has no effect: the Job is the record that it ran")
	}
	c.pod(path.Child("template", "spec"), &job.Template.Spec, capacity)
}

func (c *checker) metadata(path *field.Path, metadata *akriv0.BrokerPodMetadata) {
	if metadata == nil {
		return
	}
	for _, name := range render.OwnLabels {
		if _, there := metadata.Labels[name]; there {
			c.warn(path.Child("labels").Key(name), "has no effect: Akri sets it")
		}
	}
	for label, value := range metadata.Labels {
		for _, problem := range append(validation.IsQualifiedName(label), validation.IsValidLabelValue(value)...) {
			c.refuse(field.Invalid(path.Child("labels").Key(label), value, problem))
		}
	}
	for annotation := range metadata.Annotations {
		for _, problem := range validation.IsQualifiedName(strings.ToLower(annotation)) {
			c.refuse(field.Invalid(path.Child("annotations").Key(annotation), field.OmitValueType{}, problem))
		}
	}
}

func (c *checker) pod(path *field.Path, spec *corev1.PodSpec, capacity int64) {
	if len(spec.Containers) == 0 {
		c.refuse(field.Required(path.Child("containers"), "a broker needs a container"))
	}
	if spec.Resources != nil {
		c.podResources(path.Child("resources"), spec.Resources)
	}
	asks, mistaken := false, len(c.problems)
	for i := range spec.InitContainers {
		asks = c.container(path.Child("initContainers").Index(i), &spec.InitContainers[i], capacity) || asks
	}
	for i := range spec.Containers {
		asks = c.container(path.Child("containers").Index(i), &spec.Containers[i], capacity) || asks
	}
	if !asks && mistaken == len(c.problems) && len(spec.Containers) > 0 {
		c.warn(path.Child("containers"), "none asks for %s in resources.limits, so the broker gets no device", render.Placeholder)
	}
}

// podResources: extended resources belong to containers, and Akri fills in no others.
func (c *checker) podResources(path *field.Path, resources *corev1.ResourceRequirements) {
	for part, list := range map[string]corev1.ResourceList{"limits": resources.Limits, "requests": resources.Requests} {
		for name := range list {
			if meantAsPlaceholder(name) {
				c.refuse(field.Forbidden(path.Child(part).Key(string(name)), "belongs into the resources of a container"))
			}
		}
	}
}

// container says whether it asks for the device.
func (c *checker) container(path *field.Path, container *corev1.Container, capacity int64) bool {
	path = path.Child("resources")
	limits, requests := container.Resources.Limits, container.Resources.Requests
	c.placeholders(path.Child("limits"), limits, capacity)
	c.placeholders(path.Child("requests"), requests, capacity)
	limit, limited := limits[render.Placeholder]
	request, requested := requests[render.Placeholder]
	switch {
	case requested && !limited:
		c.refuse(field.Required(path.Child("limits").Key(string(render.Placeholder)), "a device is asked for in limits; requests alone are refused"))
	case requested && limit.Cmp(request) != 0:
		c.refuse(field.Invalid(path.Child("requests").Key(string(render.Placeholder)), request.String(), "must equal that in limits"))
	}
	return limited || requested
}

func (c *checker) placeholders(path *field.Path, list corev1.ResourceList, capacity int64) {
	for name, quantity := range list {
		switch {
		case name == render.Placeholder:
			c.slots(path.Key(string(name)), quantity, capacity)
		case meantAsPlaceholder(name):
			c.refuse(field.Invalid(path, string(name), fmt.Sprintf("is no resource; the device is %q", render.Placeholder)))
		}
	}
}

func (c *checker) slots(path *field.Path, quantity resource.Quantity, capacity int64) {
	slots := quantity.Value() // rounded up
	switch {
	case slots < 1 || quantity.Cmp(*resource.NewQuantity(slots, resource.DecimalSI)) != 0:
		c.refuse(field.Invalid(path, quantity.String(), "must be a whole number, at least 1"))
	case slots > capacity:
		c.refuse(field.Invalid(path, quantity.String(), fmt.Sprintf("is more than the capacity, %d: no node could run it", capacity)))
	}
}

// meantAsPlaceholder: no resource has braces in its name, or this word.
func meantAsPlaceholder(name corev1.ResourceName) bool {
	return strings.ContainsAny(string(name), "{}") || strings.Contains(strings.ToUpper(string(name)), "PLACEHOLDER")
}
