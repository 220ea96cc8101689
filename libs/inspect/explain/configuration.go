package explain

import (
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Configuration explains a Configuration.
func Configuration(s *Snapshot, namespace, name string) Explanation {
	e := Explanation{Kind: "Configuration", Namespace: namespace, Name: name}
	c := find(s.Configurations, namespace, name)
	if c == nil {
		e.Links = []Link{s.ServicesLink(), broken(LinkAccepted, s.noConfiguration(namespace, name))}
		return e
	}
	e.Links = s.discovery(c)
	e.Links = append(e.Links, s.resources(s.InstancesOf(c)...))
	e.Links = append(e.Links, s.brokers(c, s.InstancesOf(c))...)
	return e
}

// discovery returns the links from the handler to the Instances of the Configuration.
func (s *Snapshot) discovery(c *akriv0.Configuration) []Link {
	return []Link{s.ServicesLink(), s.handlerLink(c), s.acceptedLink(c), s.activeLink(c), s.foundLink(c), s.instancesLink(c)}
}

func condition(c *akriv0.Configuration, kind string) metav1.Condition {
	for _, condition := range c.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: akriv0.ReasonNoReport, Message: "no node has reported yet"}
}

// handlerLink evaluates HandlerRegistered. The condition is True if any node has the handler.
func (s *Snapshot) handlerLink(c *akriv0.Configuration) Link {
	registered := condition(c, akriv0.ConditionHandlerRegistered)
	if registered.Status == metav1.ConditionUnknown {
		return pending(LinkHandler, registered.Message)
	}

	causes := target{Snapshot: s, configuration: c}.causes(LinkHandler)
	switch {
	case len(causes) == 0:
		return ok(LinkHandler, handlerMessage(c))
	case registered.Status == metav1.ConditionTrue:
		return partial(LinkHandler, registered.Message, causes...)
	}

	// The cause that the condition names comes first.
	position := func(cause Cause) int {
		if string(cause.ID) == registered.Reason {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(causes, func(a, b Cause) int { return position(a) - position(b) })
	return broken(LinkHandler, causes...)
}

// handlerMessage names the nodes with the handler, if the status lists them.
func handlerMessage(c *akriv0.Configuration) string {
	message := strconv.Quote(c.Spec.DiscoveryHandler.Name)
	if nodes := ActiveNodes(c); len(nodes) > 0 {
		message += " on " + NodeList(nodes)
	}
	return message
}

// acceptedLink evaluates what the webhook and the handler have to accept.
func (s *Snapshot) acceptedLink(c *akriv0.Configuration) Link {
	if cause := (target{Snapshot: s, configuration: c}).firstCause(LinkAccepted); cause != nil {
		return broken(LinkAccepted, *cause)
	}
	details := condition(c, akriv0.ConditionDetailsAccepted)
	if details.Status == metav1.ConditionUnknown {
		return pending(LinkAccepted, details.Message)
	}
	return ok(LinkAccepted, details.Message)
}

// ActiveNodes returns the nodes whose handlers serve the Configuration.
func ActiveNodes(c *akriv0.Configuration) []string {
	var names []string
	for _, node := range c.Status.Nodes {
		if slices.ContainsFunc(node.Handlers, func(h akriv0.HandlerStatus) bool { return h.Status != akriv0.HandlerOffline }) {
			names = append(names, node.Name)
		}
	}
	return names
}

// activeLink evaluates which nodes report, and which do not run Akri.
func (s *Snapshot) activeLink(c *akriv0.Configuration) Link {
	message := plural(int(c.Status.NodesReporting), "node")
	causes := target{Snapshot: s, configuration: c}.causes(LinkActive)
	switch {
	case c.Status.NodesReporting == 0 && len(causes) > 0:
		return broken(LinkActive, causes...)
	case c.Status.NodesReporting == 0:
		return pending(LinkActive, condition(c, akriv0.ConditionNodesReporting).Message)
	case len(causes) > 0:
		return partial(LinkActive, message+"; "+causes[0].Message, causes...)
	default:
		return ok(LinkActive, message)
	}
}

func (s *Snapshot) foundLink(c *akriv0.Configuration) Link {
	if causes := (target{Snapshot: s, configuration: c}).causes(LinkFound); len(causes) > 0 {
		return broken(LinkFound, causes...)
	}
	found := condition(c, akriv0.ConditionDevicesFound)
	if found.Status == metav1.ConditionUnknown {
		return pending(LinkFound, found.Message)
	}
	return ok(LinkFound, found.Message)
}

// instancesLink evaluates whether each device has an Instance with valid slots.
func (s *Snapshot) instancesLink(c *akriv0.Configuration) Link {
	instances := s.InstancesOf(c)
	causes := target{Snapshot: s, configuration: c, instances: instances}.causes(LinkInstances)
	switch {
	case len(causes) > 0 && len(instances) > 0:
		return partial(LinkInstances, causes[0].Message, causes...)
	case len(causes) > 0:
		return broken(LinkInstances, causes...)
	case len(instances) > 0:
		return ok(LinkInstances, plural(len(instances), "Instance"))
	case condition(c, akriv0.ConditionDevicesFound).Status == metav1.ConditionTrue:
		return pending(LinkInstances, "none yet")
	default:
		return skipped(LinkInstances, "no device is found")
	}
}

func plural(count int, noun string) string {
	if count == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", count, noun)
}
