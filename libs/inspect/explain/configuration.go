package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Configuration explains a Configuration.
func Configuration(s *Snapshot, namespace, name string) Explanation {
	e := Explanation{Kind: "Configuration", Namespace: namespace, Name: name}
	c := Find(s.Configurations, namespace, name)
	if c == nil {
		e.Links = []Link{s.ServicesLink(), broken(LinkAccepted, s.noConfiguration(namespace, name))}
		return e
	}
	instances := s.InstancesOf(c)
	e.Links = append(s.discovery(c), s.resourceLink("", instances))
	e.Links = append(e.Links, s.brokers(c, instances)...)
	return e
}

// discovery returns the links from the handler to the Instances of the Configuration.
func (s *Snapshot) discovery(c *akriv0.Configuration) []Link {
	t := target{Snapshot: s, configuration: c, instances: s.InstancesOf(c)}
	return []Link{s.ServicesLink(), t.handlerLink(), t.acceptedLink(), t.activeLink(), t.foundLink(), t.instancesLink()}
}

func condition(c *akriv0.Configuration, kind string) metav1.Condition {
	unknown := metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: akriv0.ReasonNoReport, Message: "no node has reported yet"}
	return *cmp.Or(meta.FindStatusCondition(c.Status.Conditions, kind), &unknown)
}

// handlerLink evaluates HandlerRegistered. The condition is True if any node has the handler.
func (t target) handlerLink() Link {
	registered := condition(t.configuration, akriv0.ConditionHandlerRegistered)
	if registered.Status == metav1.ConditionUnknown {
		return pending(LinkHandler, registered.Message)
	}

	causes := t.causes(LinkHandler)
	switch {
	case len(causes) == 0:
		return ok(LinkHandler, handlerMessage(t.configuration))
	case registered.Status == metav1.ConditionTrue:
		return partial(LinkHandler, registered.Message, causes...)
	}

	// The cause that the condition names comes first.
	if i := slices.IndexFunc(causes, func(cause Cause) bool { return string(cause.ID) == registered.Reason }); i > 0 {
		causes[0], causes[i] = causes[i], causes[0]
	}
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
func (t target) acceptedLink() Link {
	if cause := t.firstCause(LinkAccepted); cause != nil {
		return broken(LinkAccepted, *cause)
	}
	return stated(LinkAccepted, condition(t.configuration, akriv0.ConditionDetailsAccepted))
}

// stated returns the link that the condition states, without a cause.
func stated(link string, condition metav1.Condition) Link {
	if condition.Status == metav1.ConditionUnknown {
		return pending(link, condition.Message)
	}
	return ok(link, condition.Message)
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
func (t target) activeLink() Link {
	reporting := t.configuration.Status.NodesReporting
	message := Plural(int(reporting), "node")
	causes := t.causes(LinkActive)
	switch {
	case reporting == 0 && len(causes) > 0:
		return broken(LinkActive, causes...)
	case reporting == 0:
		return pending(LinkActive, condition(t.configuration, akriv0.ConditionNodesReporting).Message)
	case len(causes) > 0:
		return partial(LinkActive, message+"; "+causes[0].Message, causes...)
	default:
		return ok(LinkActive, message)
	}
}

func (t target) foundLink() Link {
	if causes := t.causes(LinkFound); len(causes) > 0 {
		return broken(LinkFound, causes...)
	}
	return stated(LinkFound, condition(t.configuration, akriv0.ConditionDevicesFound))
}

// instancesLink evaluates whether each device has an Instance with valid slots.
func (t target) instancesLink() Link {
	causes := t.causes(LinkInstances)
	switch {
	case len(causes) > 0 && len(t.instances) > 0:
		return partial(LinkInstances, causes[0].Message, causes...)
	case len(causes) > 0:
		return broken(LinkInstances, causes...)
	case len(t.instances) > 0:
		return ok(LinkInstances, Plural(len(t.instances), "Instance"))
	case condition(t.configuration, akriv0.ConditionDevicesFound).Status == metav1.ConditionTrue:
		return pending(LinkInstances, "none yet")
	default:
		return skipped(LinkInstances, "no device is found")
	}
}

// Plural returns a number with its noun.
func Plural(count int, noun string) string {
	if count == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", count, noun)
}
