package desired

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/attributes"
)

// LabelManagedBy of DeviceClasses and ResourceSlices has the value ManagedBy.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "akri-dra-controller"
)

// ConfigurationClass returns the DeviceClass for any device of a Configuration.
func (f Features) ConfigurationClass(name string, owner metav1.OwnerReference) *resourcev1.DeviceClass {
	return f.class(name, attributes.Configuration, owner)
}

// InstanceClass returns the DeviceClass for one device.
func (f Features) InstanceClass(name string, owner metav1.OwnerReference) *resourcev1.DeviceClass {
	return f.class(name, attributes.Instance, owner)
}

// class returns nil if the name is too long for an extended resource of a Pod.
func (f Features) class(name, attribute string, owner metav1.OwnerReference) *resourcev1.DeviceClass {
	if len(name) > akriv0.MaxResourceName || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil
	}
	selector := fmt.Sprintf("device.driver == %q && device.attributes[%q].%s == %q", akriv0.Driver, akriv0.Driver, attribute, name)
	class := &resourcev1.DeviceClass{
		ObjectMeta: objectMeta(akriv0.DeviceClassName(name), owner),
		Spec:       resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: selector}}}},
	}
	if f.ExtendedResources {
		class.Spec.ExtendedResourceName = new(akriv0.ResourceName(name))
	}
	return class
}

func objectMeta(name string, owner metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Labels: map[string]string{LabelManagedBy: ManagedBy}, OwnerReferences: []metav1.OwnerReference{owner},
	}
}

// Root returns the DeviceClass for all devices, for an installation whose chart does not create it.
// It belongs to an object of the chart, so that the garbage collector removes it with the release.
// It has the labels and annotations with which Helm marks its objects: Helm would refuse to create
// the DeviceClass if the values change, because another one exists.
func Root(owner *rbacv1.ClusterRole) *resourcev1.DeviceClass {
	class := &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: akriv0.Driver, Labels: map[string]string{}, Annotations: map[string]string{}, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: owner.Name, UID: owner.UID},
		}},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{
			{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", akriv0.Driver)}},
		}},
	}
	if manager, exists := owner.Labels[LabelManagedBy]; exists {
		class.Labels[LabelManagedBy] = manager
	}
	for key, value := range owner.Annotations {
		if strings.HasPrefix(key, "meta.helm.sh/") {
			class.Annotations[key] = value
		}
	}
	return class
}

// Owner returns the reference to the DeviceClass for all devices. It owns all others and the
// ResourceSlices, so that the garbage collector removes them with the release.
func Owner(class *resourcev1.DeviceClass) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "DeviceClass", Name: class.Name, UID: class.UID,
	}
}
