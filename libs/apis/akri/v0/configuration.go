package v0

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Configuration tells Akri which devices to look for and what to run on them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:resource:shortName=akric,categories=all
// +kubebuilder:printcolumn:name="Capacity",type=string,JSONPath=`.spec.capacity`
// +kubebuilder:printcolumn:name="Devices",type=integer,JSONPath=`.status.devices`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Configuration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ConfigurationSpec   `json:"spec"`
	Status ConfigurationStatus `json:"status,omitempty"`
}

// ConfigurationList is a list of Configurations.
//
// +kubebuilder:object:root=true
type ConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Configuration `json:"items"`
}

// ConfigurationSpec is what the user asks for.
type ConfigurationSpec struct {
	// DiscoveryHandler finds the devices.
	DiscoveryHandler DiscoveryHandler `json:"discoveryHandler"`
	// Capacity is how many containers may use one device at a time, over all nodes.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Capacity *int32 `json:"capacity,omitempty"`
	// BrokerSpec is the workload that runs on each device; absent: none.
	// +optional
	// +nullable
	BrokerSpec *BrokerSpec `json:"brokerSpec,omitempty"`
	// InstanceServiceSpec is the Service of each device's brokers; absent: none.
	// +optional
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	InstanceServiceSpec *corev1.ServiceSpec `json:"instanceServiceSpec,omitempty"`
	// ConfigurationServiceSpec is the Service over the brokers of all devices; absent: none.
	// +optional
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	ConfigurationServiceSpec *corev1.ServiceSpec `json:"configurationServiceSpec,omitempty"`
	// BrokerProperties are environment variables for the containers that use a device, beside those of the handler.
	// Where both have a key, this one wins.
	// +optional
	BrokerProperties map[string]string `json:"brokerProperties,omitempty"`

	// Malformed says which of the broker and Services could not be read, and why. It is no part of the API.
	Malformed []string `json:"-"`
}

// DiscoveryHandler names a Discovery Handler and says what it should look for.
type DiscoveryHandler struct {
	// Name that the handler registers under, e.g. `udev`.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// DiscoveryDetails are passed to the handler verbatim; normally YAML.
	// +optional
	DiscoveryDetails string `json:"discoveryDetails,omitempty"`
	// DiscoveryProperties are named values for the handler, e.g. credentials.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxItems=256
	DiscoveryProperties []DiscoveryProperty `json:"discoveryProperties,omitempty"`
}

// DiscoveryProperty is one named value for a handler.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.value) && has(self.valueFrom))",message="set value or valueFrom, not both"
type DiscoveryProperty struct {
	// +kubebuilder:validation:Pattern=`^[_A-Za-z][_A-Za-z0-9]*$`
	Name string `json:"name"`
	// +optional
	// +nullable
	Value *string `json:"value,omitempty"`
	// +optional
	// +nullable
	ValueFrom *PropertySource `json:"valueFrom,omitempty"`
}

// PropertySource is where a property's value is read from.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretKeyRef) != has(self.configMapKeyRef)",message="set exactly one of secretKeyRef and configMapKeyRef"
type PropertySource struct {
	// +optional
	SecretKeyRef *KeyRef `json:"secretKeyRef,omitempty"`
	// +optional
	ConfigMapKeyRef *KeyRef `json:"configMapKeyRef,omitempty"`
}

// KeyRef is one key of a Secret or ConfigMap.
type KeyRef struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Namespace of the object; absent: that of the Configuration.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +kubebuilder:validation:MinLength=1
	Key string `json:"key"`
	// Optional: when the object or key does not exist the property is left out, instead of being an error.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// BrokerSpec is the workload that runs on each device.
//
// +kubebuilder:validation:XValidation:rule="has(self.brokerPodSpec) != has(self.brokerJobSpec)",message="set exactly one of brokerPodSpec and brokerJobSpec"
// +kubebuilder:validation:XValidation:rule="!has(self.brokerPodMetadata) || has(self.brokerPodSpec)",message="brokerPodMetadata is for brokerPodSpec; brokerJobSpec has template.metadata"
type BrokerSpec struct {
	// BrokerPodSpec: one Pod for each node that sees the device, at most capacity.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	BrokerPodSpec *corev1.PodSpec `json:"brokerPodSpec,omitempty"`
	// BrokerPodMetadata is for the Pods made from BrokerPodSpec.
	// +optional
	BrokerPodMetadata *BrokerPodMetadata `json:"brokerPodMetadata,omitempty"`
	// BrokerJobSpec: one Job for each device.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	BrokerJobSpec *batchv1.JobSpec `json:"brokerJobSpec,omitempty"`
}

// BrokerPodMetadata is what users want to be known of their broker Pods. Where Akri sets the same key, Akri's value wins.
type BrokerPodMetadata struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ConfigurationStatus is what Akri sees of a Configuration. Written by instance-writer alone.
type ConfigurationStatus struct {
	// ObservedGeneration is the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Devices is the number of Instances.
	// +optional
	Devices int32 `json:"devices"`
	// Nodes is what each node has to say: its handlers, its devices, what is wrong there.
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []NodeStatus `json:"nodes,omitempty"`
	// Conditions: Ready, and where it is not True the reason and which node says so.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeStatus is what one node has to say of a Configuration.
type NodeStatus struct {
	Name string `json:"name"`
	// Devices that the node sees.
	Devices int32 `json:"devices"`
	// Handlers that serve the Configuration on the node.
	// +optional
	Handlers []HandlerStatus `json:"handlers,omitempty"`
	// Problems on the node.
	// +optional
	Problems []Problem `json:"problems,omitempty"`
}

// HandlerState is the state of a registered Discovery Handler.
//
// +kubebuilder:validation:Enum=Waiting;Active;Offline
type HandlerState string

// States of a Discovery Handler.
const (
	// HandlerWaiting means that no Configuration uses the handler.
	HandlerWaiting HandlerState = "Waiting"
	// HandlerActive means that at least one Configuration uses the handler.
	HandlerActive HandlerState = "Active"
	// HandlerOffline means that the handler cannot be reached.
	HandlerOffline HandlerState = "Offline"
)

// HandlerStatus is one endpoint of a Discovery Handler on a node.
type HandlerStatus struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
	// Status is Waiting, Active or Offline.
	Status HandlerState `json:"status"`
	// OfflineSince is set while the status is Offline.
	// +optional
	OfflineSince *metav1.Time `json:"offlineSince,omitempty"`
}

// Problem is something that a person should mend.
type Problem struct {
	// Reason in CamelCase, for machines.
	Reason string `json:"reason"`
	// Message for people: what is wrong, where, and what would be right.
	Message string `json:"message"`
}

// CapacityOrDefault is the capacity with Akri's default of 1.
func (s *ConfigurationSpec) CapacityOrDefault() int32 {
	if s.Capacity == nil {
		return 1
	}
	return *s.Capacity
}
