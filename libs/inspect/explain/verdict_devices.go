package explain

import (
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Devices returns the verdict on the devices of a Configuration: those that were found work, and
// others would be found.
func Devices(s *Snapshot, c *akriv0.Configuration) Verdict {
	return devicesLink(s, c).of(SubjectDevices, c.Namespace, c.Name)
}

func devicesLink(s *Snapshot, c *akriv0.Configuration) Link {
	if link := s.componentLink(InstanceWriter); link.State == Broken || link.State == Waiting {
		return link // the status of the Configuration is that of an earlier time
	}
	if cause := s.missingDefinition(); cause != nil {
		return broken(LinkServices, *cause)
	}
	discovery := chain(s.discovery(c)[1:])
	instances := s.InstancesOf(c)
	if len(instances) == 0 {
		return discovery
	}

	var links []Link
	for _, instance := range instances {
		links = append(links, s.deviceLink(instance))
	}
	devices := group("device", links)
	switch {
	case devices.State != Works:
		return devices
	case discovery.State == Broken || discovery.State == Partly:
		return partly(discovery.Name, devices.Message, discovery.Causes...)
	default:
		return works(LinkFound, Plural(len(instances), "device")+" on "+Plural(len(nodesOf(instances)), "node"))
	}
}

// nodesOf returns the nodes that see one of the devices, by name.
func nodesOf(instances []*akriv0.Instance) []string {
	var nodes []string
	for _, instance := range instances {
		nodes = append(nodes, instance.Spec.Nodes...)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
