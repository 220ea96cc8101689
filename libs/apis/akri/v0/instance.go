package v0

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Instance is one device that at least one node sees. Written by instance-writer alone; not for
// editing.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:resource:shortName=akrii,categories=all
// +kubebuilder:printcolumn:name="Config",type=string,JSONPath=`.spec.configurationName`
// +kubebuilder:printcolumn:name="Shared",type=boolean,JSONPath=`.spec.shared`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.spec.nodes`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Instance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec InstanceSpec `json:"spec"`
}

// InstanceList is a list of Instances.
//
// +kubebuilder:object:root=true
type InstanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Instance `json:"items"`
}

// InstanceSpec is a device and who uses it.
type InstanceSpec struct {
	// ConfigurationName of the Configuration, in the same namespace, through which the device was
	// found.
	ConfigurationName string `json:"configurationName"`
	// CDIName is `akri.sh/<configuration>=<digest>`.
	CDIName string `json:"cdiName"`
	// Capacity is how many slots the device has.
	// +kubebuilder:validation:Minimum=0
	Capacity int32 `json:"capacity"`
	// BrokerProperties are the environment variables for containers that use the device.
	// +optional
	BrokerProperties map[string]string `json:"brokerProperties,omitempty"`
	// DeviceUsage says who holds each slot: key `<instance>-<index>`, value empty (free), `<node>`
	// (held through akri.sh/<instance>) or `C:<virtual id>:<node>` (held through
	// akri.sh/<configuration>). A missing key is free.
	// +optional
	// +mapType=granular
	DeviceUsage map[string]string `json:"deviceUsage,omitempty"`
	// Nodes that see the device.
	// +optional
	// +listType=set
	Nodes []string `json:"nodes,omitempty"`
	// Shared: more than one node may see the device.
	// +optional
	// +kubebuilder:default=false
	Shared bool `json:"shared"`
}
