package explain

import (
	"fmt"

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
		e.Links = s.noInstance(namespace, name)
		return e
	}
	only := []*akriv0.Instance{instance}
	e.Links = append(s.discoveryOf(only), seenLink(instance), s.resourceLink("", only), s.slotsLink(instance))
	if c := Find(s.Configurations, namespace, instance.Spec.ConfigurationName); c != nil {
		e.Links = append(e.Links, s.brokers(c, only)...)
	}
	return e
}

// noInstance explains the Configuration that would have the Instance.
func (s *Snapshot) noInstance(namespace, name string) []Link {
	prefix := akriv0.InstancePrefix(name)
	for i := range s.Configurations {
		c := &s.Configurations[i]
		if c.Namespace != namespace || prefix == "" || akriv0.InstanceName(c.Name, "") != prefix {
			continue
		}
		e := Explanation{Links: s.discovery(c)}
		if e.Broken() != nil {
			return e.Links
		}
		return append(e.Links, broken(LinkSeen, noInstance(c, namespace, name)))
	}
	return []Link{s.ServicesLink(), broken(LinkSeen, noInstance(nil, namespace, name))}
}

func seenLink(instance *akriv0.Instance) Link {
	id := instance.Annotations[akriv0.DeviceIDAnnotation]
	if len(instance.Spec.Nodes) == 0 {
		return pending(LinkSeen, fmt.Sprintf("device %q is seen by no node", id))
	}
	return ok(LinkSeen, fmt.Sprintf("device %q on %s", id, NodeList(instance.Spec.Nodes)))
}

func (s *Snapshot) slotsLink(instance *akriv0.Instance) Link {
	slots := s.Slots(instance)
	message := fmt.Sprintf("%d of %d held", len(slots)-freeSlots(slots), len(slots))
	if by := holders(slots); by != "" {
		message += ", by " + by
	}

	cause := target{Snapshot: s, instances: []*akriv0.Instance{instance}}.firstCause(LinkSlots)
	switch {
	case cause == nil:
		return ok(LinkSlots, message)
	case cause.ID == SlotMalformed:
		return partial(LinkSlots, cause.Message, *cause)
	default:
		return partial(LinkSlots, message, *cause)
	}
}
