package v0

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Configuration defines which devices to discover and which workload to run on them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:resource:shortName=akric,categories=all
// +kubebuilder:printcolumn:name="Handler",type=string,JSONPath=`.spec.discoveryHandler.name`
// +kubebuilder:printcolumn:name="Capacity",type=string,JSONPath=`.spec.capacity`
// +kubebuilder:printcolumn:name="Devices",type=integer,JSONPath=`.status.devices`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="DevicesWorking")].reason`
// +kubebuilder:printcolumn:name="Brokers",type=string,JSONPath=`.status.conditions[?(@.type=="BrokersWorking")].reason`
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

// ConfigurationSpec is the desired state of a Configuration.
//
// +kubebuilder:validation:XValidation:rule="has(self.discoveryHandler)",message="must name a Discovery Handler",reason=FieldValueRequired,fieldPath=".discoveryHandler"
type ConfigurationSpec struct {
	// DiscoveryHandler selects the Discovery Handler that finds the devices.
	// +optional
	DiscoveryHandler DiscoveryHandler `json:"discoveryHandler"`
	// Capacity is the number of containers, on all nodes together, that may use one device at a
	// time.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Capacity *int32 `json:"capacity,omitempty"`
	// ExpectedDevices is the number of devices that should be found. With fewer, the condition
	// DevicesWorking is False with the reason Broken or Partly. Without it, a Configuration whose
	// devices are not found has the reason NoneFound, which causes no alert.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	ExpectedDevices int32 `json:"expectedDevices,omitempty"`
	// BrokerSpec is the workload that runs for each device. Without it, Akri runs none.
	// +optional
	// +nullable
	BrokerSpec *BrokerSpec `json:"brokerSpec,omitempty"`
	// InstanceServiceSpec is the Service for the brokers of each device. Without it, Akri creates
	// none.
	// +optional
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	InstanceServiceSpec *corev1.ServiceSpec `json:"instanceServiceSpec,omitempty"`
	// InstanceServiceMetadata is added to the Service created from InstanceServiceSpec.
	// +optional
	InstanceServiceMetadata *AdditionalMetadata `json:"instanceServiceMetadata,omitempty"`
	// ConfigurationServiceSpec is the Service for the brokers of all devices. Without it, Akri
	// creates none.
	// +optional
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	ConfigurationServiceSpec *corev1.ServiceSpec `json:"configurationServiceSpec,omitempty"`
	// ConfigurationServiceMetadata is added to the Service created from ConfigurationServiceSpec.
	// +optional
	ConfigurationServiceMetadata *AdditionalMetadata `json:"configurationServiceMetadata,omitempty"`
	// BrokerProperties are additional environment variables for the containers that use a device.
	// They override those of the handler.
	// +optional
	BrokerProperties map[string]string `json:"brokerProperties,omitempty"`
	// AllowedNamespaces are the namespaces, in addition to that of the Configuration, whose Pods
	// may use the devices. To allow only its own namespace, name that. Without it, all namespaces
	// may.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`
	// Nodes are the nodes on which the devices may be. Other nodes do not get the details and the
	// values of discoveryProperties, and devices that they report are not accepted. Without it, the
	// devices may be on all nodes.
	// +optional
	Nodes *AllowedNodes `json:"nodes,omitempty"`

	// Malformed lists the decoding errors of brokerSpec, instanceServiceSpec and
	// configurationServiceSpec. It is not part of the API.
	Malformed []MalformedField `json:"-"`
}

// MalformedField is a field that cannot be decoded.
type MalformedField struct{ Field, Message string }

// AllowedNodes selects nodes by what a node cannot choose itself. A node must meet each field that
// is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.names) || has(self.matchLabels)",message="set names, matchLabels or both; without nodes, the devices may be on all nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, k.startsWith('node-restriction.kubernetes.io/'))",message="each key must begin with node-restriction.kubernetes.io/, because the kubelet of a node can set other labels of its own Node",fieldPath=".matchLabels"
type AllowedNodes struct {
	// Names of Nodes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Names []string `json:"names,omitempty"`
	// MatchLabels are labels that a Node must have. The keys begin with
	// `node-restriction.kubernetes.io/`: the API server does not let a kubelet set these if its
	// admission plug-in NodeRestriction is enabled.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// NodeRestrictionPrefix begins the keys of labels that a kubelet cannot set on its own Node.
const NodeRestrictionPrefix = "node-restriction.kubernetes.io/"

// Allows returns whether devices may be on the node. nil allows all nodes.
func (n *AllowedNodes) Allows(name string, labels map[string]string) bool {
	if n == nil {
		return true
	}
	if len(n.Names) > 0 && !slices.Contains(n.Names, name) {
		return false
	}
	for key, value := range n.MatchLabels {
		if actual, set := labels[key]; !set || actual != value {
			return false
		}
	}
	return len(n.Names)+len(n.MatchLabels) > 0
}

// DiscoveryHandler selects a Discovery Handler and configures what it looks for.
type DiscoveryHandler struct {
	// Name under which the handler registers, for example `udev`.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._/-]{0,126}$`
	Name string `json:"name"`
	// DiscoveryDetails are passed to the handler unchanged. Most handlers expect YAML.
	// +optional
	DiscoveryDetails string `json:"discoveryDetails,omitempty"`
	// DiscoveryProperties are named values for the handler, for example credentials.
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

// PropertySource is the source of a property's value.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretKeyRef) != has(self.configMapKeyRef)",message="set exactly one of secretKeyRef and configMapKeyRef"
type PropertySource struct {
	// +optional
	SecretKeyRef *KeyRef `json:"secretKeyRef,omitempty"`
	// +optional
	ConfigMapKeyRef *KeyRef `json:"configMapKeyRef,omitempty"`
}

// KeyRef is one key of a Secret or ConfigMap. The patterns are those of Kubernetes: no other object
// or key can exist.
type KeyRef struct {
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
	// Namespace of the object. Defaults to the namespace of the Configuration.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	Namespace string `json:"namespace,omitempty"`
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
	// Optional omits the property if the object or key does not exist. Otherwise that is an error.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// BrokerSpec is the workload that runs for each device.
//
// +kubebuilder:validation:XValidation:rule="has(self.brokerPodSpec) != has(self.brokerJobSpec)",message="set exactly one of brokerPodSpec and brokerJobSpec"
// +kubebuilder:validation:XValidation:rule="!has(self.brokerPodMetadata) || has(self.brokerPodSpec)",message="brokerPodMetadata is for brokerPodSpec; brokerJobSpec has template.metadata"
type BrokerSpec struct {
	// BrokerPodSpec runs one Pod on each node that sees the device, at most capacity Pods.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	BrokerPodSpec *corev1.PodSpec `json:"brokerPodSpec,omitempty"`
	// BrokerPodMetadata is added to the Pods created from BrokerPodSpec.
	// +optional
	BrokerPodMetadata *AdditionalMetadata `json:"brokerPodMetadata,omitempty"`
	// BrokerJobSpec runs one Job for each device.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	BrokerJobSpec *batchv1.JobSpec `json:"brokerJobSpec,omitempty"`
}

// AdditionalMetadata is added to the metadata of an object that Akri creates. Keys that Akri sets
// cannot be overridden. In values, `$(AKRI_CONFIGURATION)` is the name of the Configuration, and
// `$(AKRI_INSTANCE)` that of the Instance, unless the object belongs to the Configuration.
type AdditionalMetadata struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ConfigurationStatus is the observed state of a Configuration. broker-controller writes the
// conditions SpecValid, BrokersRunning, DevicesWorking and BrokersWorking, instance-writer writes
// everything else.
type ConfigurationStatus struct {
	// ObservedGeneration is the generation of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Devices is the number of Instances.
	// +optional
	Devices int32 `json:"devices"`
	// NodesReporting is the number of nodes that report.
	// +optional
	NodesReporting int32 `json:"nodesReporting"`
	// Nodes lists the handlers, devices and problems of each node. If the cluster has more than 32
	// nodes, it lists the nodes with problems, up to 32, the most recent problems first.
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []NodeStatus `json:"nodes,omitempty"`
	// Conditions explain whether the Configuration works: DevicesWorking and BrokersWorking have
	// the verdicts, the others the facts.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeStatus is the state of a Configuration on one node.
type NodeStatus struct {
	Name string `json:"name"`
	// Devices is the number of devices that the node sees. While the node does not report, it is
	// the number of Instances that list the node.
	Devices int32 `json:"devices"`
	// NotReportingSince is the time since which the node does not report. Its handlers and problems
	// are not known then.
	// +optional
	NotReportingSince *metav1.Time `json:"notReportingSince,omitempty"`
	// Handlers that serve the Configuration on the node.
	// +optional
	Handlers []HandlerStatus `json:"handlers,omitempty"`
	// Problems on the node.
	// +optional
	Problems []Problem `json:"problems,omitempty"`
	// ProblemsSince is the time since which the node has these problems.
	// +optional
	ProblemsSince *metav1.Time `json:"problemsSince,omitempty"`
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
	// OfflineSince is the time when the status became Offline.
	// +optional
	OfflineSince *metav1.Time `json:"offlineSince,omitempty"`
}

// Problem describes a state that needs action by a user.
type Problem struct {
	// Reason is a machine-readable code in CamelCase.
	Reason string `json:"reason"`
	// Message states what is wrong, where, and how to fix it. In a long status it is empty if it is
	// that of the first node in the list with the same reason.
	Message string `json:"message"`
	// Subject is the object that has the problem. Without it, that is the Configuration.
	// +optional
	Subject *Subject `json:"subject,omitempty"`
	// Evidence is what was found instead, one fact each. For HandlerNotRegistered it has the names
	// of the handlers that are registered, for HandlerSocketMissing the path of the socket. It is
	// left out together with the message.
	// +optional
	Evidence []string `json:"evidence,omitempty"`
	// Wait states what Akri does later if the problem remains.
	// +optional
	Wait *Wait `json:"wait,omitempty"`
}

// Same reports whether both are the same problem. The other fields follow from the reason and the
// message, except the times of a Wait, which can begin again.
func (p Problem) Same(other Problem) bool {
	return p.Reason == other.Reason && p.Message == other.Message
}

// Subject identifies an object that a problem is about.
type Subject struct {
	// Kind is DiscoveryHandler, Secret or ConfigMap, for example.
	Kind string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Kinds of a Subject that are not kinds of Kubernetes.
const (
	// SubjectHandler is a Discovery Handler, by the name under which it registers.
	SubjectHandler = "DiscoveryHandler"
)

// Wait describes a state that Akri tolerates until a time.
type Wait struct {
	// Awaited is what ends the wait, for example "the Discovery Handler can be reached".
	Awaited string `json:"awaited"`
	// Since is when the state began, by the clock of the node that reports it.
	Since metav1.Time `json:"since"`
	// Until is when Then happens, by the same clock.
	Until metav1.Time `json:"until"`
	// Then is what happens, for example "its devices are removed".
	Then string `json:"then"`
}

// CapacityOrDefault returns the capacity, which is 1 by default.
func (s *ConfigurationSpec) CapacityOrDefault() int32 {
	if s.Capacity == nil {
		return 1
	}
	return *s.Capacity
}
