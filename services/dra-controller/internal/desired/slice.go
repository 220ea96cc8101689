// Package desired returns the DeviceClasses and ResourceSlices that Configurations, Instances and
// Nodes require. It is pure: the same input gives the same objects on every replica.
package desired

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/attributes"
)

// slots is the capacity that each allocation consumes one of.
const slots = "slots"

// maxProperties leaves room for the other attributes and the capacity: a device has at most 32.
const maxProperties = 24

// Device is a device and what its ResourceSlice depends on.
type Device struct {
	Instance *akriv0.Instance
	// Configuration is nil if it does not exist.
	Configuration *akriv0.Configuration
	// Nodes are those of the Instance that exist and use Dynamic Resource Allocation.
	Nodes []*corev1.Node
}

// Pool returns the name of the pool of the device. Without consumable capacity each Instance has a
// pool of its own, whose devices are the slots.
func (f Features) Pool(instance *akriv0.Instance) string {
	if !f.ConsumableCapacity {
		return akriv0.InstancePool(instance.Namespace, instance.Name)
	}
	var onlyNode string
	if !instance.Spec.Shared && len(instance.Spec.Nodes) == 1 {
		onlyNode = instance.Spec.Nodes[0]
	}
	return akriv0.DevicePool(instance.Namespace, instance.Spec.ConfigurationName, onlyNode, instance.Name)
}

// Offer is a device in a pool, and the nodes that see it.
type Offer struct {
	resourcev1.Device
	Nodes Nodes
}

// Offers returns the device, or its slots, for a pool. It returns none if no Pod can get the device
// through a ResourceClaim: none of its nodes uses Dynamic Resource Allocation, or device plugins
// hold all of its slots.
func (f Features) Offers(device Device) []Offer {
	if len(device.Nodes) == 0 {
		return nil
	}
	set := nodeSet(device.Nodes, device.Instance.Spec.Shared)
	var offers []Offer
	for _, offered := range f.devices(device) {
		offers = append(offers, Offer{offered, set})
	}
	return offers
}

// devices returns one device whose allocations consume its slots, one each, or one device for each
// slot if the scheduler allocates a device only once. It returns none if no slot can be claimed, or
// if the API server accepts no such name.
func (f Features) devices(device Device) (devices []resourcev1.Device) {
	names := claimableSlots(device.Instance)
	if f.ConsumableCapacity && len(names) > 0 {
		all := resourcev1.Device{
			Name: device.Instance.Name, Attributes: attributesOf(device), AllowMultipleAllocations: new(true),
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{slots: capacity(int64(len(names)))},
		}
		devices = []resourcev1.Device{all}
	} else {
		for _, name := range names {
			devices = append(devices, resourcev1.Device{Name: name, Attributes: attributesOf(device)})
		}
	}
	return slices.DeleteFunc(devices, func(device resourcev1.Device) bool { return len(validation.IsDNS1123Label(device.Name)) > 0 })
}

// claimableSlots returns the names of the slots below the capacity that are free or held by
// ResourceClaims.
func claimableSlots(instance *akriv0.Instance) (names []string) {
	for index := range int(instance.Spec.Capacity) {
		name := akriv0.SlotName(instance.Name, index)
		holder, err := akriv0.ParseSlotHolder(instance.Spec.DeviceUsage[name])
		if err == nil && (holder.Free() || holder.Claim != "") {
			names = append(names, name)
		}
	}
	return names
}

func capacity(slots int64) resourcev1.DeviceCapacity {
	one := resource.MustParse("1")
	return resourcev1.DeviceCapacity{
		Value:         *resource.NewQuantity(slots, resource.DecimalSI),
		RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: &one, ValidValues: []resource.Quantity{one}},
	}
}

// attributesOf returns what claims can select by. Several nodes can see a shared device at
// different places, so that it has no standard attributes.
func attributesOf(device Device) map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
	instance := device.Instance
	values := properties(device)
	maps.Copy(values, map[string]string{
		attributes.Namespace: instance.Namespace, attributes.Configuration: instance.Spec.ConfigurationName, attributes.Instance: instance.Name,
	})
	if device.Configuration != nil {
		values[attributes.Handler] = device.Configuration.Spec.DiscoveryHandler.Name
	}
	if !instance.Spec.Shared {
		maps.Copy(values, attributes.Standard(instance.Spec.BrokerProperties))
	}

	all := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
	for name, value := range values {
		if attributes.IsValue(value) {
			all[resourcev1.QualifiedName(name)] = resourcev1.DeviceAttribute{StringValue: &value}
		}
	}
	all[attributes.Shared] = resourcev1.DeviceAttribute{BoolValue: &instance.Spec.Shared}
	return all
}

// properties returns the properties that the Configuration names, in the order of their names up to
// the limit.
func properties(device Device) map[string]string {
	named := map[string]string{}
	if device.Configuration == nil {
		return named
	}
	names := strings.Split(device.Configuration.Annotations[akriv0.PropertiesAnnotation], ",")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
	}
	slices.Sort(names)
	for _, name := range names {
		value, exists := device.Instance.Spec.BrokerProperties[name]
		if exists && len(named) < maxProperties && attributes.IsName(name) {
			named[name] = value
		}
	}
	return named
}
