package explain

import (
	"fmt"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// LinkSeen and LinkSlots are links of Instances.
const (
	LinkSeen  = "seen by nodes"
	LinkSlots = "slots"
)

// Instance explains an Instance, or why there is none.
func Instance(s *Snapshot, namespace, name string) Explanation {
	e := Explanation{Kind: "Instance", Namespace: namespace, Name: name}
	instance := Find(s.Instances, namespace, name)
	if instance == nil {
		e.Links = missingInstance(s, namespace, name)
		return e
	}
	t := target{Snapshot: s, configuration: s.configurationOf(instance), instances: []*akriv0.Instance{instance}}
	e.Links = append(t.discoveryLinks(), s.seenLink(instance), t.resourceLink(brokerPodOf(t.configuration)), slotsLink(s, instance))
	if t.configuration != nil {
		e.Links = append(e.Links, t.brokerLinks()...)
	}
	e.Verdicts = []Verdict{Device(s, instance)}
	return e
}

// missingInstance explains the Configuration that would have the Instance.
func missingInstance(s *Snapshot, namespace, name string) []Link {
	prefix := akriv0.InstancePrefix(name)
	for i := range s.Configurations {
		c := &s.Configurations[i]
		if c.Namespace != namespace || prefix == "" || akriv0.InstanceName(c.Name, "") != prefix {
			continue
		}
		e := Explanation{Links: s.discovery(c)}
		if e.Decisive() != nil {
			return e.Links
		}
		return append(e.Links, broken(LinkSeen, noInstance(c, namespace, name)))
	}
	return []Link{s.ServicesLink(), broken(LinkSeen, noInstance(nil, namespace, name))}
}

func (s *Snapshot) seenLink(instance *akriv0.Instance) Link {
	id := instance.Annotations[akriv0.DeviceIDAnnotation]
	if cause := (target{Snapshot: s, instances: []*akriv0.Instance{instance}}).firstCause(LinkSeen); cause != nil {
		return broken(LinkSeen, *cause)
	}
	switch {
	case instance.DeletionTimestamp != nil:
		return s.expect(LinkSeen, fmt.Sprintf("the Instance of device %q is being deleted", id), expectation{
			Wait: awaits("its deletion", *instance.DeletionTimestamp, writeTimeout),
		})
	case instance.Spec.Capacity == 0:
		return s.expect(LinkSeen, fmt.Sprintf("device %q has no slots", id), expectation{
			Wait:  awaits("the capacity of its Configuration", instance.CreationTimestamp, writeTimeout),
			cause: Cause{Remedies: []Remedy{s.readServiceLogs("Read the logs of instance-writer.", InstanceWriter)}},
		})
	case len(instance.Spec.Nodes) == 0:
		return s.expect(LinkSeen, fmt.Sprintf("no node sees device %q", id), expectation{
			Wait:  awaits("a node that sees the device, or the deletion of its Instance", instance.CreationTimestamp, writeTimeout),
			cause: Cause{Remedies: []Remedy{s.readServiceLogs("Read the logs of instance-writer.", InstanceWriter)}},
		})
	}
	return works(LinkSeen, fmt.Sprintf("device %q on %s", id, NodeList(instance.Spec.Nodes)))
}

func slotsLink(s *Snapshot, instance *akriv0.Instance) Link {
	slots := s.Slots(instance)
	message := fmt.Sprintf("%d of %d held", len(slots)-freeSlots(slots), len(slots))
	if by := holders(slots); by != "" {
		message += ", by " + by
	}
	if nodes := holdersWithoutPods(s, slots); len(nodes) > 0 {
		message += "; no Pod uses those of " + NodeList(nodes)
	}

	cause := target{Snapshot: s, instances: []*akriv0.Instance{instance}}.firstCause(LinkSlots)
	if cause != nil {
		return partly(LinkSlots, cause.Message, *cause)
	}
	return works(LinkSlots, message)
}

// holdersWithoutPods returns the nodes that hold slots which no Pod uses. A node releases these
// within seconds: one that keeps them may be stolen.
func holdersWithoutPods(s *Snapshot, slots []Slot) (nodes []string) {
	if !s.readable("pods") || s.OneNamespace {
		return nil
	}
	for _, slot := range slots {
		if slot.Node != "" && len(slot.Pods) == 0 {
			nodes = append(nodes, slot.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
