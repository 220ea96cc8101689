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
	instance := find(s.Instances, namespace, name)
	if instance == nil {
		e.Links = s.noInstance(namespace, name)
		return e
	}
	e.Links = s.discoveryOf([]*akriv0.Instance{instance})
	e.Links = append(e.Links, s.seenLink(instance), s.resources(instance), s.slotsLink(instance))
	if c := find(s.Configurations, namespace, instance.Spec.ConfigurationName); c != nil {
		e.Links = append(e.Links, s.brokers(c, []*akriv0.Instance{instance})...)
	}
	return e
}

// noInstance explains the Configuration that would have the Instance.
func (s *Snapshot) noInstance(namespace, name string) []Link {
	prefix := akriv0.InstancePrefix(name)
	missing := Cause{ID: NotFound, Message: fmt.Sprintf("there is no Instance %s in the namespace %s", name, namespace), Remedies: []Remedy{
		{Text: "List the devices.", Command: "kubectl akri devices --all-namespaces"},
	}}
	for i := range s.Configurations {
		c := &s.Configurations[i]
		if c.Namespace != namespace || prefix == "" || akriv0.InstanceName(c.Name, "") != prefix {
			continue
		}
		missing.Message += fmt.Sprintf(": no handler reports its device to the Configuration %s", c.Name)
		missing.Remedies = append(missing.Remedies, Remedy{
			Text: "Read when the device was removed.", Command: fmt.Sprintf("kubectl describe configuration.akri.sh %s --namespace %s", c.Name, c.Namespace),
		})
		e := Explanation{Links: s.discovery(c)}
		if e.Broken() != nil {
			return e.Links
		}
		return append(e.Links, broken(LinkSeen, missing))
	}
	return []Link{s.ServicesLink(), broken(LinkSeen, missing)}
}

func (s *Snapshot) seenLink(instance *akriv0.Instance) Link {
	id := instance.Annotations[akriv0.DeviceIDAnnotation]
	if len(instance.Spec.Nodes) == 0 {
		return pending(LinkSeen, fmt.Sprintf("device %q is seen by no node", id))
	}
	return ok(LinkSeen, fmt.Sprintf("device %q on %s", id, NodeList(instance.Spec.Nodes)))
}

func (s *Snapshot) slotsLink(instance *akriv0.Instance) Link {
	slots := s.Slots(instance)
	for _, slot := range slots {
		if slot.Problem != "" {
			return partial(LinkSlots, slot.Problem, Cause{ID: SlotMalformed, Message: slot.Problem, Remedies: freeMalformed([]*akriv0.Instance{instance})})
		}
	}
	free := freeSlots(slots)
	message := fmt.Sprintf("%d of %d held", len(slots)-free, len(slots))
	if by := holders(slots); by != "" {
		message += ", by " + by
	}
	if free == 0 {
		return partial(LinkSlots, message, s.capacityUsed(akriv0.ResourceName(instance.Name), slots))
	}
	return ok(LinkSlots, message)
}
