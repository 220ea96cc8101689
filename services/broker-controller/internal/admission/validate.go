package admission

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
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
	// digestLength is the length of the suffix that an Instance's name adds to the Configuration's.
	// A longer digest does not count: few Configurations have a device with one.
	digestLength = len(exampleDigest)
	// exampleDigest is the suffix of a device.
	exampleDigest = "-8120fe"
)

// akriName matches names that Akri could replace. With a second $ they are meant to stay.
var akriName = regexp.MustCompile(`\${1,2}\(AKRI_\w*\)`)

// validator collects the errors of a decoded spec.
type validator struct {
	errs        problems
	warnings    []string
	denyDetails bool
}

func (v *validator) refuse(err *field.Error) { v.errs.add(err) }

func (v *validator) warn(path *field.Path, format string, arguments ...any) {
	v.warnings = append(v.warnings, path.String()+": "+fmt.Sprintf(format, arguments...))
}

// name checks that the resource name of an Instance does not exceed the kubelet's limit.
func (v *validator) name(name string) {
	if limit := akriv0.MaxResourceName - digestLength; len(name) > limit {
		v.refuse(field.TooLong(field.NewPath("metadata", "name"), name, limit))
	}
}

func (v *validator) spec(path *field.Path, name string, spec *akriv0.ConfigurationSpec) {
	if spec.DiscoveryHandler.Name == "" {
		v.refuse(field.Required(path.Child("discoveryHandler", "name"), "must name a Discovery Handler"))
	}
	v.details(path.Child("discoveryHandler", "discoveryDetails"), spec.DiscoveryHandler)
	capacity := spec.CapacityOrDefault()
	if capacity < minCapacity || capacity > maxCapacity {
		v.refuse(field.Invalid(path.Child("capacity"), capacity, fmt.Sprintf("must be from %d to %d", minCapacity, maxCapacity)))
	}
	v.properties(path.Child("brokerProperties"), spec.BrokerProperties)
	names := render.NamesOfInstance(name+exampleDigest, name)
	if spec.BrokerSpec != nil {
		v.broker(path.Child("brokerSpec"), spec.BrokerSpec, int64(capacity), names)
	}
	v.metadata(path.Child("instanceServiceMetadata"), spec.InstanceServiceMetadata, names)
	v.metadata(path.Child("configurationServiceMetadata"), spec.ConfigurationServiceMetadata, render.NamesOfConfiguration(name))
}

// properties warns: discovery-operator refuses such properties, and has the list of those that are
// allowed.
func (v *validator) properties(path *field.Path, properties map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if err := akriv0.ValidateEnvironment(name, properties[name], nil); err != nil {
			v.warn(path.Key(name), "%v", err)
		}
	}
}

func (v *validator) broker(path *field.Path, broker *akriv0.BrokerSpec, capacity int64, names render.Names) {
	pod, job := broker.BrokerPodSpec, broker.BrokerJobSpec
	switch {
	case pod != nil && job != nil:
		v.refuse(field.Forbidden(path, "set exactly one of brokerPodSpec and brokerJobSpec"))
	case pod == nil && job == nil:
		v.refuse(field.Required(path, "set exactly one of brokerPodSpec and brokerJobSpec"))
	}
	if pod != nil {
		v.pod(path.Child("brokerPodSpec"), pod, capacity)
		v.metadata(path.Child("brokerPodMetadata"), broker.BrokerPodMetadata, names)
	}
	if job != nil {
		v.job(path.Child("brokerJobSpec"), job, capacity)
	}
}

func (v *validator) job(path *field.Path, job *batchv1.JobSpec, capacity int64) {
	if job.TTLSecondsAfterFinished != nil {
		v.warn(path.Child("ttlSecondsAfterFinished"), "has no effect: Akri keeps the Job so that it does not run again")
	}
	v.pod(path.Child("template", "spec"), &job.Template.Spec, capacity)
}

// metadata checks the metadata with the names replaced.
func (v *validator) metadata(path *field.Path, metadata *akriv0.AdditionalMetadata, names render.Names) {
	if metadata == nil {
		return
	}
	for _, name := range render.ReservedLabels {
		if _, ok := metadata.Labels[name]; ok {
			v.warn(path.Child("labels").Key(name), "has no effect: Akri sets this label")
		}
	}
	for label, value := range names.Values(metadata.Labels) {
		for _, message := range append(validation.IsQualifiedName(label), validation.IsValidLabelValue(value)...) {
			v.refuse(field.Invalid(path.Child("labels").Key(label), value, message))
		}
	}
	for annotation, value := range metadata.Annotations {
		for _, name := range akriName.FindAllString(value, -1) {
			if !strings.HasPrefix(name, "$$") && names.Value(name) == name {
				v.warn(path.Child("annotations").Key(annotation), "%s is not replaced: use %s, or in objects of a device %s",
					name, render.NameOfConfiguration, render.NameOfInstance)
			}
		}
		for _, message := range validation.IsQualifiedName(strings.ToLower(annotation)) {
			v.refuse(field.Invalid(path.Child("annotations").Key(annotation), field.OmitValueType{}, message))
		}
	}
}

func (v *validator) pod(path *field.Path, spec *corev1.PodSpec, capacity int64) {
	if len(spec.Containers) == 0 {
		v.refuse(field.Required(path.Child("containers"), "must have at least one container"))
	}
	if spec.Resources != nil {
		v.podResources(path.Child("resources"), spec.Resources)
	}
	if len(spec.EphemeralContainers) > 0 {
		v.refuse(field.Forbidden(path.Child("ephemeralContainers"), "Kubernetes refuses new Pods that have them"))
	}
	usesDevice, errsBefore := false, len(v.errs.first)
	for i := range spec.InitContainers {
		usesDevice = v.container(path.Child("initContainers").Index(i), &spec.InitContainers[i], capacity) || usesDevice
	}
	for i := range spec.Containers {
		usesDevice = v.container(path.Child("containers").Index(i), &spec.Containers[i], capacity) || usesDevice
	}
	if !usesDevice && errsBefore == len(v.errs.first) && len(spec.Containers) > 0 {
		v.warn(path.Child("containers"), "no container has %s in resources.limits, so the broker gets no device", render.Placeholder)
	}
}

// podResources refuses placeholders in Pod-level resources, which cannot hold extended resources.
func (v *validator) podResources(path *field.Path, resources *corev1.ResourceRequirements) {
	for part, list := range map[string]corev1.ResourceList{"limits": resources.Limits, "requests": resources.Requests} {
		for name := range list {
			if resemblesPlaceholder(name) {
				v.refuse(field.Forbidden(path.Child(part).Key(string(name)), "set it in the resources of a container"))
			}
		}
	}
}

// container reports whether the container uses the device.
func (v *validator) container(path *field.Path, container *corev1.Container, capacity int64) bool {
	path = path.Child("resources")
	limits, requests := container.Resources.Limits, container.Resources.Requests
	v.placeholders(path.Child("limits"), limits, capacity)
	v.placeholders(path.Child("requests"), requests, capacity)
	limit, hasLimit := limits[render.Placeholder]
	request, hasRequest := requests[render.Placeholder]
	switch {
	case hasRequest && !hasLimit:
		v.refuse(field.Required(path.Child("limits").Key(string(render.Placeholder)),
			"Kubernetes refuses devices that are only in requests"))
	case hasRequest && limit.Cmp(request) != 0:
		v.refuse(field.Invalid(path.Child("requests").Key(string(render.Placeholder)), request.String(),
			"must equal the value in limits"))
	}
	return hasLimit || hasRequest
}

func (v *validator) placeholders(path *field.Path, list corev1.ResourceList, capacity int64) {
	for name, quantity := range list {
		switch {
		case name == render.Placeholder:
			v.slots(path.Key(string(name)), quantity, capacity)
		case resemblesPlaceholder(name):
			v.refuse(field.Invalid(path, string(name), fmt.Sprintf("is not a resource name; use %q for the device", render.Placeholder)))
		}
	}
}

func (v *validator) slots(path *field.Path, quantity resource.Quantity, capacity int64) {
	slots := quantity.Value() // rounded up
	switch {
	case slots < 1 || quantity.Cmp(*resource.NewQuantity(slots, resource.DecimalSI)) != 0:
		v.refuse(field.Invalid(path, quantity.String(), "must be a whole number and at least 1"))
	case slots > capacity:
		v.refuse(field.Invalid(path, quantity.String(), fmt.Sprintf("must not be more than the capacity, %d", capacity)))
	}
}

// resemblesPlaceholder reports whether a name is a placeholder or a misspelt one. Resource names
// have no braces.
func resemblesPlaceholder(name corev1.ResourceName) bool {
	return strings.ContainsAny(string(name), "{}") || strings.Contains(strings.ToUpper(string(name)), "PLACEHOLDER")
}
