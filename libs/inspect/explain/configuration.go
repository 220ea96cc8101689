package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Configuration explains a Configuration.
func Configuration(s *Snapshot, namespace, name string) Explanation {
	e := Explanation{Kind: "Configuration", Namespace: namespace, Name: name}
	c := Find(s.Configurations, namespace, name)
	if c == nil {
		e.Links = []Link{s.ServicesLink(), broken(LinkAccepted, noConfiguration(s, namespace, name))}
		return e
	}
	t := target{Snapshot: s, configuration: c, instances: s.InstancesOf(c)}
	e.Links = append(s.discovery(c), t.resourceLink(brokerPodOf(c)))
	e.Links = append(e.Links, t.brokerLinks()...)
	e.Verdicts = []Verdict{Devices(s, c), Brokers(s, c)}
	return e
}

// brokerPodOf returns the spec of the broker Pods of the Configuration, or nil if it has none.
func brokerPodOf(c *akriv0.Configuration) *corev1.PodSpec {
	switch {
	case c == nil || c.Spec.BrokerSpec == nil:
		return nil
	case c.Spec.BrokerSpec.BrokerJobSpec != nil:
		return &c.Spec.BrokerSpec.BrokerJobSpec.Template.Spec
	default:
		return c.Spec.BrokerSpec.BrokerPodSpec
	}
}

// discovery returns the links from the handler to the Instances of the Configuration.
func (s *Snapshot) discovery(c *akriv0.Configuration) []Link {
	known, ok := s.indexed().discovery[c]
	if !ok {
		t := target{Snapshot: s, configuration: c, instances: s.InstancesOf(c)}
		links := []Link{t.handlerLink(), t.acceptedLink(), t.activeLink(), t.foundLink(), t.instancesLink()}
		known = append([]Link{s.ServicesLink()}, withoutEffects(links)...)
		s.index.discovery[c] = known
	}
	return slices.Clone(known)
}

// withoutEffects skips the links that wait for something, in vain or not, if another link has a
// known cause or is out of service: they follow from it.
func withoutEffects(links []Link) []Link {
	overdue := func(l Link) bool { return l.State == Broken && l.Causes[0].ID == Overdue }
	explains := func(l Link) bool { return l.State == OutOfService || l.State == Broken && !overdue(l) }
	if !slices.ContainsFunc(links, explains) {
		return links
	}
	for i, link := range links {
		if link.State == Waiting || overdue(link) {
			links[i] = skipped(link.Name, "not reached")
		}
	}
	return links
}

func condition(c *akriv0.Configuration, kind string) metav1.Condition {
	unknown := metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: akriv0.ReasonNoReport, Message: "no node has reported yet"}
	return *cmp.Or(meta.FindStatusCondition(c.Status.Conditions, kind), &unknown)
}

// handlerLink evaluates HandlerRegistered. The condition is True if any node has the handler.
func (t target) handlerLink() Link {
	registered := condition(t.configuration, akriv0.ConditionHandlerRegistered)
	switch {
	case registered.Status == metav1.ConditionUnknown && t.allOff():
		return offLink(LinkHandler, t.configuration)
	case registered.Status == metav1.ConditionUnknown:
		return t.expect(LinkHandler, registered.Message, t.report("a Discovery Handler in the report of a node", reportTimeout, registered))
	}

	causes := t.causes(LinkHandler)
	switch {
	case len(causes) == 0:
		return works(LinkHandler, handlerMessage(t.configuration))
	case registered.Status == metav1.ConditionTrue:
		return partly(LinkHandler, causes[0].Message, causes...)
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
	accepted := condition(t.configuration, akriv0.ConditionDetailsAccepted)
	if accepted.Status == metav1.ConditionUnknown {
		return t.expect(LinkAccepted, accepted.Message, t.report("an answer of the Discovery Handler", listTimeout, accepted))
	}
	return works(LinkAccepted, accepted.Message)
}

const (
	// reportTimeout is more than a node takes to report, and a handler to register.
	reportTimeout = time.Minute
	// listTimeout is more than the grace period of handlers that start slowly after a reboot.
	listTimeout = 6 * time.Minute
	// decisionTimeout is more than dra-controller waits for API servers that differ.
	decisionTimeout = 12 * time.Minute
	// writeTimeout is more than a service takes to create an object.
	writeTimeout = 30 * time.Second
)

// report is the expectation that the nodes report what the condition is about.
func (t target) report(awaited string, within time.Duration, stated metav1.Condition) expectation {
	return expectation{
		Wait:  awaits(awaited, latest(t.configuration.CreationTimestamp, stated.LastTransitionTime), within),
		cause: Cause{Remedies: []Remedy{t.readServiceLogs("Read the logs of discovery-operator.", discoveryOperator)}},
	}
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
	case reporting == 0 && t.allOff():
		return offLink(LinkActive, t.configuration)
	case reporting == 0:
		reporting := condition(t.configuration, akriv0.ConditionNodesReporting)
		return t.expect(LinkActive, reporting.Message, t.report("the first report of a node", reportTimeout, reporting))
	case len(causes) > 0:
		return partly(LinkActive, message+"; "+causes[0].Message, causes...)
	default:
		link := works(LinkActive, message)
		for _, node := range t.NodesWithoutAkri() { // none is needed; for users who miss the devices of one
			link.Causes = append(link.Causes, node.Cause(t.Snapshot))
		}
		return link
	}
}

// allOff reports whether the nodes that have reported before are off, and no other one is to
// report.
func (t target) allOff() bool {
	known := t.configuration.Status.Nodes
	if len(known) == 0 || slices.ContainsFunc(known, func(n akriv0.NodeStatus) bool { return !isOff(t.nodeNamed(n.Name)) }) {
		return false
	}
	return !slices.ContainsFunc(t.Nodes, func(node corev1.Node) bool {
		return !isOff(&node) && t.configuration.Spec.Nodes.Allows(node.Name, node.Labels) &&
			len(t.podsOn(node.Name, discoveryOperator, agent)) > 0
	})
}

func offLink(name string, c *akriv0.Configuration) Link {
	return Link{Name: name, State: OutOfService, Message: condition(c, akriv0.ConditionNodesReporting).Message}
}

func (t target) foundLink() Link {
	found := condition(t.configuration, akriv0.ConditionDevicesFound)
	switch causes := t.causes(LinkFound); {
	case len(causes) > 0 && len(t.instances) > 0:
		return partly(LinkFound, causes[0].Message, causes...)
	case len(causes) > 0 && int(t.configuration.Spec.ExpectedDevices) > 0:
		return broken(LinkFound, causes...)
	case len(causes) > 0:
		return Link{Name: LinkFound, State: NoneFound, Message: causes[0].Message, Causes: causes}
	}
	if found.Status == metav1.ConditionUnknown {
		return t.expect(LinkFound, found.Message, t.report("a complete list of devices", listTimeout, found))
	}
	return works(LinkFound, found.Message)
}

// instancesLink evaluates whether each device has an Instance with valid slots.
func (t target) instancesLink() Link {
	causes := t.causes(LinkInstances)
	switch {
	case len(causes) > 0 && len(t.instances) > 0:
		return partly(LinkInstances, causes[0].Message, causes...)
	case len(causes) > 0:
		return broken(LinkInstances, causes...)
	case len(t.instances) > 0:
		return works(LinkInstances, Plural(len(t.instances), "Instance"))
	}

	found := condition(t.configuration, akriv0.ConditionDevicesFound)
	if found.Status != metav1.ConditionTrue {
		return skipped(LinkInstances, "no device is found")
	}
	if accepted := condition(t.configuration, akriv0.ConditionDevicesAccepted); accepted.Reason == akriv0.ReasonUndecided {
		return t.expect(LinkInstances, accepted.Message, expectation{
			Wait:  awaits("the decision how Pods get devices", accepted.LastTransitionTime, decisionTimeout),
			cause: Cause{Remedies: []Remedy{t.readServiceLogs("Read the logs of dra-controller.", draController)}},
		})
	}
	return t.expect(LinkInstances, "none yet", expectation{
		Wait:  awaits("the first Instance", latest(t.configuration.CreationTimestamp, found.LastTransitionTime), writeTimeout),
		cause: Cause{Remedies: []Remedy{t.readServiceLogs("Read the logs of instance-writer.", InstanceWriter)}},
	})
}

// Plural returns a number with its noun.
func Plural(count int, noun string) string {
	if count == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", count, noun)
}
