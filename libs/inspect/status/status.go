// Package status summarizes the listed API objects of an installation. Its functions are pure, like
// those of package explain.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// Overview is the state of an installation.
type Overview struct {
	// Versions of Akri's Pods. More than one is version skew.
	Versions       []string          `json:"versions"`
	Services       []explain.Service `json:"services"`
	Nodes          []Node            `json:"nodes"`
	Configurations []Configuration   `json:"configurations"`
	Devices        int               `json:"devices"`
	Slots          Count             `json:"slots"`
	Brokers        Count             `json:"brokers"`
	// Unreadable names the resources that the user may not list.
	Unreadable []string `json:"unreadable,omitempty"`
}

// Count is a number of something, and how many of them are held or ready.
type Count struct {
	Used  int `json:"used"`
	Total int `json:"total"`
}

func (c Count) String() string { return fmt.Sprintf("%d/%d", c.Used, c.Total) }

func (c *Count) add(other Count) {
	c.Used += other.Used
	c.Total += other.Total
}

// Node is the state of Akri on a node.
type Node struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Akri is true if the node services run on the node.
	Akri bool `json:"akri"`
	// NotReady lists the components of Akri whose Pods on the node are not ready.
	NotReady []string `json:"notReady,omitempty"`
	// Taints that keep Akri away.
	Taints []string `json:"taints,omitempty"`
	// Devices that the node sees.
	Devices int `json:"devices"`
	// SlotsHeld is the number of slots that the node holds.
	SlotsHeld int             `json:"slotsHeld"`
	Verdict   explain.Verdict `json:"verdict"`
}

// Configuration is the state of a Configuration.
type Configuration struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Handler   string `json:"handler"`
	Devices   int    `json:"devices"`
	Slots     Count  `json:"slots"`
	Brokers   Count  `json:"brokers"`
	// DevicesVerdict and BrokersVerdict are those of the conditions DevicesWorking and
	// BrokersWorking.
	DevicesVerdict explain.Verdict `json:"devicesVerdict"`
	BrokersVerdict explain.Verdict `json:"brokersVerdict"`
}

// Of returns the overview.
func Of(s *explain.Snapshot) Overview {
	o := Overview{Services: s.Services(), Unreadable: s.Unreadable, Devices: len(s.Instances)}
	o.Versions = explain.Versions(o.Services)
	byConfiguration := countByConfiguration(s)
	for i := range s.Configurations {
		c := &s.Configurations[i]
		line := byConfiguration[c.Namespace+"/"+c.Name]
		line.Namespace, line.Name, line.Handler = c.Namespace, c.Name, c.Spec.DiscoveryHandler.Name
		line.DevicesVerdict, line.BrokersVerdict = explain.Devices(s, c), explain.Brokers(s, c)
		o.Configurations = append(o.Configurations, line)
		o.Slots.add(line.Slots)
		o.Brokers.add(line.Brokers)
	}
	slices.SortFunc(o.Configurations, func(a, b Configuration) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	o.Nodes = nodes(s, o.Services)
	return o
}

// Condition returns the condition of the Configuration, Unknown if it has none.
func Condition(c *akriv0.Configuration, kind string) metav1.Condition {
	unknown := metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: akriv0.ReasonNoReport}
	return *cmp.Or(meta.FindStatusCondition(c.Status.Conditions, kind), &unknown)
}

// countByConfiguration counts devices, slots and brokers.
func countByConfiguration(s *explain.Snapshot) map[string]Configuration {
	counts := map[string]Configuration{}
	for i := range s.Instances {
		instance := &s.Instances[i]
		key := instance.Namespace + "/" + instance.Spec.ConfigurationName
		count := counts[key]
		count.Devices++
		count.Slots.add(slotCount(instance))
		counts[key] = count
	}
	for i := range s.Pods {
		pod := &s.Pods[i]
		configuration := pod.Labels[akriv0.ConfigurationLabel]
		if configuration == "" || pod.Labels["controller"] != akriv0.Group || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		key := pod.Namespace + "/" + configuration
		count := counts[key]
		count.Brokers.Total++
		if explain.PodReady(pod) {
			count.Brokers.Used++
		}
		counts[key] = count
	}
	return counts
}

func slotCount(instance *akriv0.Instance) Count {
	return Count{Used: int(instance.Status.SlotsUsed), Total: int(instance.Status.SlotsUsed + instance.Status.SlotsFree)}
}

func nodes(s *explain.Snapshot, services []explain.Service) []Node {
	held, devices := map[string]int{}, map[string]int{}
	for i := range s.Instances {
		for _, node := range s.Instances[i].Spec.Nodes {
			devices[node]++
		}
		for _, value := range s.Instances[i].Spec.DeviceUsage {
			if holder, err := akriv0.ParseSlotHolder(value); err == nil && !holder.Free() {
				held[holder.Node]++
			}
		}
	}
	without := map[string]explain.NodeWithout{}
	for _, node := range s.NodesWithoutAkri() {
		without[node.Node] = node
	}
	installed := len(services) > 0 || s.ServicesLink().State == explain.Skipped // the workloads cannot be listed
	var lines []Node
	for i := range s.Nodes {
		node := &s.Nodes[i]
		missing, isWithout := without[node.Name]
		line := Node{
			Name: node.Name, Ready: explain.NodeReady(node), Akri: installed && !isWithout, Taints: missing.TaintNames(),
			Devices: devices[node.Name], SlotsHeld: held[node.Name], Verdict: explain.Node(s, node),
		}
		for _, service := range services {
			if slices.Contains(service.NotReadyOn, node.Name) {
				line.NotReady = append(line.NotReady, service.Component)
			}
		}
		lines = append(lines, line)
	}
	slices.SortFunc(lines, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return lines
}

// Device is one Instance.
type Device struct {
	Namespace     string      `json:"namespace"`
	Instance      string      `json:"instance"`
	Configuration string      `json:"configuration"`
	Handler       string      `json:"handler,omitempty"`
	ID            string      `json:"id"`
	Shared        bool        `json:"shared"`
	Nodes         []string    `json:"nodes"`
	Slots         Count       `json:"slots"`
	Resource      string      `json:"resource"`
	Created       metav1.Time `json:"created"`
	// Verdict states whether Pods can use the device, if that is known.
	Verdict *explain.Verdict `json:"verdict,omitempty"`
}

// Age returns the time since the Instance was created.
func (d Device) Age(now time.Time) time.Duration { return now.Sub(d.Created.Time) }

// in returns the Instances in the namespace, or all if it is empty, by namespace and name.
func in(s *explain.Snapshot, namespace string) []*akriv0.Instance {
	return explain.Where(s.Instances, func(i *akriv0.Instance) bool { return namespace == "" || i.Namespace == namespace })
}

// Devices returns the Instances in the namespace, or all if it is empty.
func Devices(s *explain.Snapshot, namespace string) []Device {
	handlers := map[string]string{}
	for i := range s.Configurations {
		c := &s.Configurations[i]
		handlers[c.Namespace+"/"+c.Name] = c.Spec.DiscoveryHandler.Name
	}
	devices := []Device{}
	for _, instance := range in(s, namespace) {
		device := DeviceIn(s, instance)
		device.Handler = handlers[device.Namespace+"/"+device.Configuration]
		devices = append(devices, device)
	}
	return devices
}

// DeviceIn returns the device of an Instance with the verdict on it, without its handler.
func DeviceIn(s *explain.Snapshot, instance *akriv0.Instance) Device {
	device := DeviceOf(instance)
	device.Verdict = new(explain.Device(s, instance))
	return device
}

// DeviceOf returns the device of an Instance, without its handler and the verdict.
func DeviceOf(instance *akriv0.Instance) Device {
	return Device{
		Namespace: instance.Namespace, Instance: instance.Name, Configuration: instance.Spec.ConfigurationName,
		ID: instance.Annotations[akriv0.DeviceIDAnnotation], Shared: instance.Spec.Shared, Nodes: instance.Spec.Nodes,
		Slots: slotCount(instance), Resource: akriv0.ResourceName(instance.Name), Created: instance.CreationTimestamp,
	}
}

// Slots returns the slots of the Instances in the namespace, or all if it is empty.
func Slots(s *explain.Snapshot, namespace string) []explain.Slot {
	return s.Slots(in(s, namespace)...)
}

// Handler is an endpoint of a Discovery Handler on a node, or a Discovery Handler that no node has.
type Handler struct {
	Node         string              `json:"node"`
	Name         string              `json:"name"`
	Endpoint     string              `json:"endpoint"`
	Status       akriv0.HandlerState `json:"status"`
	OfflineSince *metav1.Time        `json:"offlineSince,omitempty"`
	// Configurations that use it, as namespace/name.
	Configurations []string `json:"configurations"`
	// Verdict is that on the handler on all nodes.
	Verdict explain.Verdict `json:"verdict"`
}

// Handlers returns the handlers that Configurations use, as their status has them, and those that
// no status has. Above 32 nodes, a status has only nodes with problems.
func Handlers(s *explain.Snapshot) []Handler {
	type endpoint struct{ node, name, address string }
	found := map[endpoint]*Handler{}
	handlers := []Handler{}
	for i := range s.Configurations {
		c := &s.Configurations[i]
		for _, node := range c.Status.Nodes {
			for _, h := range node.Handlers {
				key := endpoint{node.Name, h.Name, h.Endpoint}
				if found[key] == nil {
					found[key] = &Handler{Node: node.Name, Name: h.Name, Endpoint: h.Endpoint, Status: h.Status, OfflineSince: h.OfflineSince}
				}
				found[key].Configurations = append(found[key].Configurations, c.Namespace+"/"+c.Name)
			}
		}
	}
	for _, verdict := range explain.Handlers(s) {
		isOnNode := false
		for key, handler := range found {
			if key.name == verdict.Subject.Name {
				handler.Verdict, isOnNode = verdict, true
			}
		}
		if !isOnNode {
			name := verdict.Subject.Name
			found[endpoint{name: name}] = &Handler{Name: name, Configurations: configurationsWith(s, name), Verdict: verdict}
		}
	}
	for _, handler := range found {
		slices.Sort(handler.Configurations)
		handlers = append(handlers, *handler)
	}
	slices.SortFunc(handlers, func(a, b Handler) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	return handlers
}

// configurationsWith returns the Configurations that name the handler, as namespace/name.
func configurationsWith(s *explain.Snapshot, handler string) (names []string) {
	for i := range s.Configurations {
		if c := &s.Configurations[i]; c.Spec.DiscoveryHandler.Name == handler {
			names = append(names, c.Namespace+"/"+c.Name)
		}
	}
	return names
}
