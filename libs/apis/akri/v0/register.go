package v0

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group. It is also the domain of extended resources and labels.
const Group = "akri.sh"

// GroupVersion is the group and version of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v0"}

// Resources of the API group.
var (
	ConfigurationResource = GroupVersion.WithResource("configurations")
	InstanceResource      = GroupVersion.WithResource("instances")
)

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Configuration{}, &ConfigurationList{}, &Instance{}, &InstanceList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
