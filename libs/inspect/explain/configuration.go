package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/catalog"
)

// Configuration explains a Configuration.
func Configuration(s *Snapshot, namespace, name string) Explanation {
	e := Explanation{Kind: "Configuration", Namespace: namespace, Name: name}
	c := find(s.Configurations, namespace, name)
	if c == nil {
		e.Links = []Link{s.ServicesLink(), s.noConfiguration(namespace, name)}
		return e
	}
	e.Links = s.discovery(c)
	e.Links = append(e.Links, s.resources(s.InstancesOf(c)...))
	e.Links = append(e.Links, s.brokers(c, s.InstancesOf(c))...)
	return e
}

func (s *Snapshot) noConfiguration(namespace, name string) Link {
	cause := Cause{ID: NotFound, Message: fmt.Sprintf("there is no Configuration %s in the namespace %s", name, namespace)}
	for i := range s.Configurations {
		if other := &s.Configurations[i]; other.Name == name {
			cause.Message += fmt.Sprintf("; there is one in the namespace %s", other.Namespace)
			cause.Remedies = append(cause.Remedies, Remedy{
				Text: "Name its namespace.", Command: fmt.Sprintf("kubectl akri explain configuration %s --namespace %s", name, other.Namespace),
			})
		}
	}
	cause.Remedies = append(cause.Remedies,
		Remedy{Text: "List all Configurations.", Command: "kubectl get configurations.akri.sh --all-namespaces"},
		Remedy{Text: "Or apply it, and read the errors.", Command: "kubectl apply -f CONFIGURATION.yaml"})
	return broken(LinkAccepted, cause)
}

// discovery returns the links from the handler to the Instances of the Configuration.
func (s *Snapshot) discovery(c *akriv0.Configuration) []Link {
	return []Link{s.ServicesLink(), s.handlerLink(c), s.acceptedLink(c), s.activeLink(c), foundLink(c), s.instancesLink(c)}
}

func condition(c *akriv0.Configuration, kind string) metav1.Condition {
	for _, condition := range c.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: akriv0.ReasonNoReport, Message: "no node has reported yet"}
}

// problemNodes returns the nodes of the status that have a problem with the reason.
func problemNodes(c *akriv0.Configuration, reason string) []string {
	var names []string
	for _, node := range c.Status.Nodes {
		if slices.ContainsFunc(node.Problems, func(p akriv0.Problem) bool { return p.Reason == reason }) {
			names = append(names, node.Name)
		}
	}
	return names
}

// handlerLink evaluates HandlerRegistered. The condition is True if any node has the handler.
func (s *Snapshot) handlerLink(c *akriv0.Configuration) Link {
	registered := condition(c, akriv0.ConditionHandlerRegistered)
	if registered.Status == metav1.ConditionUnknown {
		return pending(LinkHandler, registered.Message)
	}
	var causes []Cause
	if nodes := problemNodes(c, akriv0.ReasonHandlerNotRegistered); len(nodes) > 0 || registered.Reason == akriv0.ReasonHandlerNotRegistered {
		causes = append(causes, s.noSuchHandler(c, registered.Message))
	}
	if nodes := problemNodes(c, akriv0.ReasonHandlerOffline); len(nodes) > 0 || registered.Reason == akriv0.ReasonHandlerOffline {
		causes = append(causes, s.handlerOffline(c, registered.Message))
	}
	switch {
	case len(causes) == 0:
		return ok(LinkHandler, handlerMessage(c))
	case registered.Status == metav1.ConditionFalse:
		first := slices.IndexFunc(causes, func(cause Cause) bool { return cause.ID == HandlerOffline })
		if registered.Reason == akriv0.ReasonHandlerOffline && first > 0 {
			causes[0], causes[first] = causes[first], causes[0]
		}
		return broken(LinkHandler, causes...)
	default:
		return partial(LinkHandler, registered.Message, causes...)
	}
}

// handlerMessage names the nodes with the handler, if the status lists them.
func handlerMessage(c *akriv0.Configuration) string {
	message := strconv.Quote(c.Spec.DiscoveryHandler.Name)
	if nodes := ActiveNodes(c); len(nodes) > 0 {
		message += " on " + NodeList(nodes)
	}
	return message
}

func (s *Snapshot) noSuchHandler(c *akriv0.Configuration, message string) Cause {
	name := c.Spec.DiscoveryHandler.Name
	if handler, own := catalog.Find(name); own {
		release, namespace := s.release()
		return Cause{ID: NoSuchHandler, Message: message, Remedies: []Remedy{{
			Text:    "Enable the handler.",
			Command: fmt.Sprintf("helm upgrade %s charts/akri --namespace %s --reset-then-reuse-values --set %s=true --wait", release, namespace, handler.Value),
		}}}
	}
	cause := Cause{ID: NoSuchHandler, Message: message, Remedies: []Remedy{{
		Text: "Run a Discovery Handler that registers as " + strconv.Quote(name) + ".", Command: "kubectl apply -f HANDLER.yaml",
	}}}
	if similar := nearest(name, registeredNames(message)); similar != "" {
		cause.Remedies = slices.Insert(cause.Remedies, 0, Remedy{
			Text: fmt.Sprintf("Use the handler %q, if the name is misspelt.", similar),
			Command: fmt.Sprintf(`kubectl patch configuration.akri.sh %s --namespace %s --type=merge --patch '{"spec":{"discoveryHandler":{"name":%q}}}'`,
				c.Name, c.Namespace, similar),
		})
	}
	return cause
}

// registeredNames returns the names after "registered: " in the message of a condition.
func registeredNames(message string) []string {
	_, list, _ := strings.Cut(message, "; registered: ")
	list, _, _ = strings.Cut(list, ";")
	return strings.Split(list, ", ")
}

func (s *Snapshot) handlerOffline(c *akriv0.Configuration, message string) Cause {
	cause := Cause{ID: HandlerOffline, Message: message}
	selector := "--all-namespaces --output wide"
	if handler, own := catalog.Find(c.Spec.DiscoveryHandler.Name); own {
		selector = fmt.Sprintf("--namespace %s --output wide --selector %s=%s", s.nodeNamespace(), ComponentLabel, handler.Component)
	}
	cause.Remedies = []Remedy{
		{Text: "Check that the Pods of the handler run.", Command: "kubectl get pods " + selector},
	}
	return cause
}

// acceptedLink evaluates what the webhook and the handler have to accept.
func (s *Snapshot) acceptedLink(c *akriv0.Configuration) Link {
	if valid := condition(c, akriv0.ConditionSpecValid); valid.Status == metav1.ConditionFalse {
		return broken(LinkAccepted, Cause{ID: SpecInvalid, Message: valid.Message, Remedies: []Remedy{edit(c)}})
	}
	if devices := condition(c, akriv0.ConditionDevicesAccepted); devices.Reason == akriv0.ReasonNameTaken {
		return broken(LinkAccepted, Cause{ID: NameTaken, Message: devices.Message, Remedies: []Remedy{rename(c, "another name")}})
	}
	details := condition(c, akriv0.ConditionDetailsAccepted)
	switch details.Status {
	case metav1.ConditionTrue:
		return ok(LinkAccepted, details.Message)
	case metav1.ConditionUnknown:
		return pending(LinkAccepted, details.Message)
	}
	return broken(LinkAccepted, s.detailsCause(c, details))
}

func edit(c *akriv0.Configuration) Remedy {
	return Remedy{Text: "Correct the Configuration.", Command: fmt.Sprintf("kubectl edit configuration.akri.sh %s --namespace %s", c.Name, c.Namespace)}
}

// rename cannot be one command, because Kubernetes cannot rename objects.
func rename(c *akriv0.Configuration, name string) Remedy {
	return Remedy{
		Text:    "Give the Configuration " + name + " in its manifest, and replace it.",
		Command: fmt.Sprintf("kubectl delete configuration.akri.sh %s --namespace %s && kubectl apply -f CONFIGURATION.yaml", c.Name, c.Namespace),
	}
}

func (s *Snapshot) detailsCause(c *akriv0.Configuration, details metav1.Condition) Cause {
	cause := Cause{Message: details.Message, Remedies: []Remedy{edit(c)}}
	switch details.Reason {
	case akriv0.ReasonPropertyForbidden:
		cause.ID, cause.Remedies = SecretRightMissing, grantRemedies(details.Message)
	case akriv0.ReasonPropertyNotFound:
		cause.ID = PropertyNotFound
		cause.Remedies = append(cause.Remedies, Remedy{
			Text: "Or create the object.", Command: fmt.Sprintf("kubectl create secret generic NAME --namespace %s --from-literal=KEY=VALUE", c.Namespace),
		})
	case akriv0.ReasonDiscoverFailed:
		cause.ID = DiscoveryFailed
		cause.Remedies = append([]Remedy{{
			Text:    "Read the logs of the handler and of discovery-operator.",
			Command: fmt.Sprintf("kubectl logs --prefix --tail=50 --namespace %s --selector %s=%s", s.nodeNamespace(), ComponentLabel, discoveryOperator),
		}}, cause.Remedies...)
	default:
		cause.ID = DetailsRefused
	}
	return cause
}

// grantRemedies returns the commands in the message of PropertyForbidden.
func grantRemedies(message string) []Remedy {
	_, rest, found := strings.Cut(message, "grant the right with: ")
	if !found {
		return nil
	}
	rest, _, _ = strings.Cut(rest, ";")
	texts := []string{"Allow to read this object.", "Give the right to instance-writer."}
	var remedies []Remedy
	for i, command := range strings.Split(rest, " && ") {
		remedies = append(remedies, Remedy{Text: texts[min(i, len(texts)-1)], Command: command})
	}
	return remedies
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
	reporting := condition(c, akriv0.ConditionNodesReporting)
	message := plural(int(c.Status.NodesReporting), "node")
	var causes []Cause
	if reporting.Status == metav1.ConditionFalse {
		causes = append(causes, s.notReporting(c, reporting.Message))
	}
	for _, node := range s.NodesWithoutAkri() {
		causes = append(causes, s.NodeWithoutCause(node))
	}
	switch {
	case c.Status.NodesReporting == 0 && len(causes) > 0:
		return broken(LinkActive, causes...)
	case c.Status.NodesReporting == 0:
		return pending(LinkActive, reporting.Message)
	case len(causes) > 0:
		return partial(LinkActive, message+"; "+causes[0].Message, causes...)
	default:
		return ok(LinkActive, message)
	}
}

func (s *Snapshot) notReporting(c *akriv0.Configuration, message string) Cause {
	cause := Cause{ID: NodeNotReporting, Message: message}
	for _, node := range c.Status.Nodes {
		if node.NotReportingSince == nil {
			continue
		}
		if n := find(s.Nodes, "", node.Name); n != nil && !NodeReady(n) {
			cause.Remedies = append(cause.Remedies, Remedy{Text: "Find out why the node is not ready.", Command: "kubectl describe node " + node.Name})
			continue
		}
		cause.Remedies = append(cause.Remedies, Remedy{
			Text: "Check that discovery-operator runs on the node.",
			Command: fmt.Sprintf("kubectl get pods --namespace %s --field-selector spec.nodeName=%s --selector %s=%s --output wide",
				s.nodeNamespace(), node.Name, PartOfLabel, PartOf),
		})
	}
	return cause
}

func foundLink(c *akriv0.Configuration) Link {
	found := condition(c, akriv0.ConditionDevicesFound)
	switch found.Status {
	case metav1.ConditionTrue:
		return ok(LinkFound, found.Message)
	case metav1.ConditionUnknown:
		return pending(LinkFound, found.Message)
	}
	remedies := []Remedy{{
		Text:    "Compare the details with the devices.",
		Command: fmt.Sprintf("kubectl get configuration.akri.sh %s --namespace %s --output jsonpath='{.spec.discoveryHandler.discoveryDetails}'", c.Name, c.Namespace),
	}}
	if c.Spec.DiscoveryHandler.Name == "udev" {
		remedies = append(remedies, Remedy{Text: "List the properties of a device, on its node.", Command: "udevadm info --attribute-walk --name /dev/DEVICE"})
	}
	return broken(LinkFound, Cause{ID: NothingMatched, Message: found.Message, Remedies: append(remedies, edit(c))})
}

// instancesLink evaluates whether each device has an Instance with valid slots.
func (s *Snapshot) instancesLink(c *akriv0.Configuration) Link {
	instances := s.InstancesOf(c)
	var causes []Cause
	if accepted := condition(c, akriv0.ConditionDevicesAccepted); accepted.Status == metav1.ConditionFalse && accepted.Reason != akriv0.ReasonNameTaken {
		causes = append(causes, deviceCause(c, accepted))
	}
	if readable := condition(c, akriv0.ConditionSlotsReadable); readable.Status == metav1.ConditionFalse {
		causes = append(causes, Cause{ID: SlotMalformed, Message: readable.Message, Remedies: freeMalformed(instances)})
	}
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

// freeMalformed returns the commands that make malformed slots free. The node that uses one takes
// it back.
func freeMalformed(instances []*akriv0.Instance) []Remedy {
	var remedies []Remedy
	for _, instance := range instances {
		for _, slot := range slices.Sorted(maps.Keys(instance.Spec.DeviceUsage)) {
			if _, err := akriv0.ParseSlotHolder(instance.Spec.DeviceUsage[slot]); err == nil {
				continue
			}
			remedies = append(remedies, Remedy{
				Text: "Make the slot free. If a Pod uses it, its node takes it back.",
				Command: fmt.Sprintf(`kubectl patch instance.akri.sh %s --namespace %s --type=merge --patch '{"spec":{"deviceUsage":{%q:""}}}'`,
					instance.Name, instance.Namespace, slot),
			})
		}
	}
	return remedies
}

func deviceCause(c *akriv0.Configuration, accepted metav1.Condition) Cause {
	if accepted.Reason != akriv0.ReasonDigestCollision {
		return Cause{ID: DeviceRefused, Message: accepted.Message, Remedies: []Remedy{{
			Text: "Correct the Discovery Handler, which sent the device.", Command: "kubectl akri handlers",
		}}}
	}
	return Cause{ID: DigestCollision, Message: accepted.Message, Remedies: []Remedy{rename(c, "another name of at most 49 characters")}}
}

func plural(count int, noun string) string {
	if count == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", count, noun)
}
