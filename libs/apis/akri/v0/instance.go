package v0

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Instance is a device that at least one node sees. Only instance-writer writes Instances; do not
// edit them.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:resource:shortName=akrii,categories=all
// +kubebuilder:printcolumn:name="Config",type=string,JSONPath=`.spec.configurationName`
// +kubebuilder:printcolumn:name="Device",type=string,JSONPath=`.metadata.annotations.akri\.sh/device-id`
// +kubebuilder:printcolumn:name="Shared",type=boolean,JSONPath=`.spec.shared`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.spec.nodes`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.slotsUsed`
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.slotsFree`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Instance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec InstanceSpec `json:"spec"`
	// Status is written together with the spec: there is no status subresource, which would cost a
	// second write for each reservation.
	// +optional
	Status InstanceStatus `json:"status,omitzero"`
}

// InstanceList is a list of Instances.
//
// +kubebuilder:object:root=true
type InstanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Instance `json:"items"`
}

// InstanceSpec describes a device and which nodes use its slots.
type InstanceSpec struct {
	// ConfigurationName is the Configuration, in the same namespace, that the device was discovered
	// for.
	ConfigurationName string `json:"configurationName"`
	// CDIName is `akri.sh/<configuration>=<digest>`.
	CDIName string `json:"cdiName"`
	// Capacity is the number of slots of the device.
	// +kubebuilder:validation:Minimum=0
	Capacity int32 `json:"capacity"`
	// BrokerProperties are environment variables for the containers that use the device.
	// +optional
	BrokerProperties map[string]string `json:"brokerProperties,omitempty"`
	// DeviceUsage maps each slot to its holder. The key is `<instance>-<index>`. The value is empty
	// (free), `<node>` (reserved through akri.sh/<instance>), `C:<virtual id>:<node>` (reserved
	// through akri.sh/<configuration>) or `D:<uid>:<node>` (reserved for the ResourceClaim with the
	// uid). A slot without an entry is free.
	// +optional
	// +mapType=granular
	DeviceUsage map[string]string `json:"deviceUsage,omitempty"`
	// Nodes are the nodes that see the device.
	// +optional
	// +listType=set
	Nodes []string `json:"nodes,omitempty"`
	// Shared is true if more than one node can see the device.
	// +optional
	// +kubebuilder:default=false
	Shared bool `json:"shared"`
}

// InstanceStatus summarizes deviceUsage, because printer columns cannot count.
type InstanceStatus struct {
	// SlotsUsed is the number of slots that are reserved or whose value is malformed.
	SlotsUsed int32 `json:"slotsUsed"`
	// SlotsFree is the number of slots that can be reserved.
	SlotsFree int32 `json:"slotsFree"`
}
