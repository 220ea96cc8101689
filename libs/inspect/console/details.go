package console

import (
	"maps"
	"slices"
	"strings"
	"time"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/status"
	"akri.sh/libs/inspect/timeline"
)

// deviceDetails is the page of one device.
type deviceDetails struct {
	Namespace, Name string
	// Device is nil if the Instance does not exist.
	Device *status.Device
	Slots  []slotRow
	// Properties are names. The values can be passwords.
	Properties  []string
	Brokers     []podRow
	Relations   relation
	Timeline    timeline.Timeline
	History     []eventRow
	Explanation explain.Explanation
}

func device(v view) (string, any, bool) {
	details := deviceDetails{Namespace: v.r.PathValue("namespace"), Name: v.r.PathValue("name")}
	details.Explanation = explain.Instance(v.Snapshot, details.Namespace, details.Name)
	details.History = v.history("Instance", details.Namespace, details.Name)
	details.Timeline = v.viewer.Timeline(details.Namespace, details.Name)
	instance := explain.Find(v.Instances, details.Namespace, details.Name)
	if instance == nil {
		return details.Name, details, false
	}
	details.Device = new(status.DeviceIn(v.Snapshot, instance))
	details.Slots = v.slotRows(v.Slots(instance))
	details.Relations = v.relations(instance.Namespace, instance.Spec.ConfigurationName, []*akriv0.Instance{instance})
	details.Properties = slices.Sorted(maps.Keys(instance.Spec.BrokerProperties))
	for _, pod := range v.BrokersOf(instance) {
		details.Brokers = append(details.Brokers, v.podRow(pod))
	}
	// Devices that come and go are Events of the Configuration.
	for _, event := range v.history("Configuration", instance.Namespace, instance.Spec.ConfigurationName) {
		if slices.Contains(strings.Split(event.Annotations[akriv0.DevicesAnnotation], ","), instance.Name) {
			details.History = append(details.History, event)
		}
	}
	return details.Name, details, true
}

// configurationDetails is the page of one Configuration.
type configurationDetails struct {
	Namespace, Name string
	// Configuration is nil if it does not exist.
	Configuration *akriv0.Configuration
	// Brokers describes what Akri creates for each device.
	Brokers     string
	Capacity    int
	Summary     status.Configuration
	Devices     []status.Device
	MoreDevices int
	Relations   relation
	History     []eventRow
	Explanation explain.Explanation
	// Unasked is true if no device matches, and the console may not ask the handlers why.
	Unasked bool
}

func configuration(v view) (string, any, bool) {
	details := configurationDetails{Namespace: v.r.PathValue("namespace"), Name: v.r.PathValue("name")}
	details.Explanation = explain.Configuration(v.Snapshot, details.Namespace, details.Name)
	details.History = v.history("Configuration", details.Namespace, details.Name)
	key := &akriv0.Configuration{}
	key.Namespace, key.Name = details.Namespace, details.Name
	instances := v.InstancesOf(key)
	details.Devices, details.MoreDevices = v.devices(instances)
	details.Relations = v.relations(key.Namespace, key.Name, instances)
	details.Configuration = explain.Find(v.Configurations, details.Namespace, details.Name)
	if details.Configuration == nil {
		return details.Name, details, len(details.Devices) > 0 // orphaned Instances refer to it
	}

	if cause := details.Explanation.Cause(); cause != nil && cause.ID == explain.NothingMatched {
		if ask := v.viewer.Closest; ask != nil {
			cause.Closest = ask(v.r.Context(), v.Snapshot, details.Configuration)
		} else {
			details.Unasked = true
		}
	}
	details.Capacity = int(details.Configuration.Spec.CapacityOrDefault())
	details.Brokers = brokersOf(details.Configuration)
	for _, c := range status.Of(v.Snapshot).Configurations {
		if c.Namespace == details.Namespace && c.Name == details.Name {
			details.Summary = c
		}
	}
	return details.Name, details, true
}

func brokersOf(c *akriv0.Configuration) string {
	switch spec := c.Spec.BrokerSpec; {
	case spec != nil && spec.BrokerJobSpec != nil:
		return "a Job for each device"
	case spec != nil && spec.BrokerPodSpec != nil:
		return "a Pod for each device and node, at most as many as slots"
	default:
		return "none: Pods of users request the devices"
	}
}

// devices returns the first devices, and the number of others.
func (v view) devices(instances []*akriv0.Instance) (devices []status.Device, more int) {
	for _, instance := range instances[:min(len(instances), maxLines)] {
		devices = append(devices, status.DeviceIn(v.Snapshot, instance))
	}
	return devices, len(instances) - len(devices)
}

// podDetails is the page of one Pod.
type podDetails struct {
	explain.Explanation

	// Pod is nil if it does not exist.
	Pod *podRow
	// Slots are those that the Pod uses, or may use.
	Slots   []slotRow
	History []eventRow
}

func pod(v view) (string, any, bool) {
	namespace, name := v.r.PathValue("namespace"), v.r.PathValue("name")
	details := podDetails{Explanation: explain.Pod(v.Snapshot, namespace, name), History: v.history("Pod", namespace, name)}
	found := explain.Find(v.Pods, namespace, name)
	if found == nil {
		return name, details, false
	}
	details.Pod = new(v.podRow(found))
	details.Slots = v.slotRows(v.slotsWhere(func(slot explain.Slot) bool { return slices.Contains(slot.Pods, namespace+"/"+name) }))
	return name, details, true
}

// slotRow is a slot with links to the Pods that use it.
type slotRow struct {
	explain.Slot

	Users []reference
}

// reference is a name with the page about it, if the viewer may see that.
type reference struct{ Name, Path string }

func (v view) slotRows(slots []explain.Slot) []slotRow {
	paths := v.paths()
	var rows []slotRow
	for _, slot := range slots {
		r := slotRow{Slot: slot}
		for _, user := range slot.Pods {
			namespace, name, _ := strings.Cut(user, "/")
			r.Users = append(r.Users, reference{user, paths[akriv0.Subject{Kind: "Pod", Namespace: namespace, Name: name}]})
		}
		rows = append(rows, r)
	}
	return rows
}

// slotsWhere returns the slots of all devices that keep accepts.
func (v view) slotsWhere(keep func(explain.Slot) bool) []explain.Slot {
	all := explain.Where(v.Instances, func(*akriv0.Instance) bool { return true })
	return slices.DeleteFunc(v.Slots(all...), func(slot explain.Slot) bool { return !keep(slot) })
}

// nodeDetails is the page of one node.
type nodeDetails struct {
	Name string
	// Node is nil if it does not exist, or if the viewer may not list Nodes.
	Node        *status.Node
	Since       time.Time
	Devices     []status.Device
	MoreDevices int
	// Slots are those that the node holds.
	Slots     []slotRow
	MoreSlots int
	Handlers  []status.Handler
	Pods      []podRow
	MorePods  int
	History   []eventRow
}

func node(v view) (string, any, bool) {
	details := nodeDetails{Name: v.r.PathValue("name")}
	for _, n := range status.Of(v.Snapshot).Nodes {
		if n.Name == details.Name {
			details.Node = &n
			details.Since = v.Since(n.Verdict).Time
		}
	}
	on := explain.Where(v.Instances, func(i *akriv0.Instance) bool { return slices.Contains(i.Spec.Nodes, details.Name) })
	details.Devices, details.MoreDevices = v.devices(on)
	slots := v.slotsWhere(func(slot explain.Slot) bool { return slot.Node == details.Name })
	details.Slots, details.MoreSlots = v.slotRows(slots[:min(len(slots), maxLines)]), max(len(slots)-maxLines, 0)
	for _, h := range status.Handlers(v.Snapshot) {
		if h.Node == details.Name {
			details.Handlers = append(details.Handlers, h)
		}
	}
	for i := range v.Pods {
		if v.Pods[i].Spec.NodeName != details.Name {
			continue
		}
		if len(details.Pods) == maxLines {
			details.MorePods++
			continue
		}
		details.Pods = append(details.Pods, v.podRow(&v.Pods[i]))
	}
	details.History = v.history("Node", "", details.Name)
	// A viewer who may not list Nodes gets here by a link from a device.
	return details.Name, details, details.Node != nil || len(on)+len(slots)+len(details.Handlers)+len(details.Pods) > 0
}
