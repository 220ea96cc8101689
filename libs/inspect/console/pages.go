package console

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/status"
	"akri.sh/libs/trial"
)

const (
	// maxRows is the number of rows of a table.
	maxRows = 1000
	// maxHistory is the number of Events on the page of an object.
	maxHistory = 50
	// maxEvents is the number of Events on the page of all.
	maxEvents = 200
)

// Event is an Event of the API server.
type Event = corev1.Event

var pages = map[string]page{
	"/{$}":                               {"overview.html", "/", overview},
	"/devices":                           {"devices.html", "/devices", devices},
	"/devices/{namespace}/{name}":        {"device.html", "/devices", device},
	"/configurations":                    {"configurations.html", "/configurations", configurations},
	"/configurations/{namespace}/{name}": {"configuration.html", "/configurations", configuration},
	"/pods/{namespace}/{name}":           {"pod.html", "", pod},
	"/handlers":                          {"handlers.html", "/handlers", handlers},
	"/events":                            {"events.html", "/events", events},
}

var functions = template.FuncMap{
	"time":      func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"join":      func(texts []string) string { return strings.Join(texts, ", ") },
	"lower":     func(text any) string { return strings.ToLower(fmt.Sprint(text)) },
	"eventTime": func(event Event) time.Time { return explain.EventTime(&event) },
	"podReady":  explain.PodReady,
	"corrected": trial.Correction,
	"count":     explain.Plural,
	"noun":      func(n int, noun string) string { return strings.TrimPrefix(explain.Plural(n, noun), fmt.Sprint(n)+" ") },
}

func overview(v view) (string, any, bool) { return "Overview", status.Of(v.Snapshot), true }

// deviceList is the page of all devices.
type deviceList struct {
	Query, Configuration, Node, Slots string
	// Configurations and Nodes to choose.
	Configurations, Nodes []string
	Devices               []status.Device
	Found, Total          int
}

func devices(v view) (string, any, bool) {
	query := v.r.URL.Query()
	list := deviceList{Query: query.Get("q"), Configuration: query.Get("configuration"), Node: query.Get("node"), Slots: query.Get("slots")}
	names, nodes := map[string]bool{}, map[string]bool{}
	all := status.Devices(v.Snapshot, "")
	for _, d := range all {
		names[d.Namespace+"/"+d.Configuration] = true
		for _, node := range d.Nodes {
			nodes[node] = true
		}
		if list.matches(d) {
			list.Devices = append(list.Devices, d)
		}
	}
	list.Configurations, list.Nodes = slices.Sorted(maps.Keys(names)), slices.Sorted(maps.Keys(nodes))
	list.Found, list.Total = len(list.Devices), len(all)
	list.Devices = list.Devices[:min(list.Found, maxRows)]
	return "Devices", list, true
}

func (l deviceList) matches(d status.Device) bool {
	if l.Configuration != "" && l.Configuration != d.Namespace+"/"+d.Configuration || l.Node != "" && !slices.Contains(d.Nodes, l.Node) {
		return false
	}
	switch l.Slots {
	case "free":
		if d.Slots.Used >= d.Slots.Total {
			return false
		}
	case "full":
		if d.Slots.Used < d.Slots.Total {
			return false
		}
	}
	text := strings.ToLower(strings.Join(append([]string{d.Namespace, d.Instance, d.Configuration, d.Handler, d.ID}, d.Nodes...), "\n"))
	for word := range strings.FieldsSeq(strings.ToLower(l.Query)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// deviceDetails is the page of one device.
type deviceDetails struct {
	Namespace, Name string
	// Device is nil if the Instance does not exist.
	Device *status.Device
	Slots  []explain.Slot
	// Properties are names. The values can be passwords.
	Properties  []string
	Brokers     []*corev1.Pod
	History     []Event
	Explanation explain.Explanation
}

func device(v view) (string, any, bool) {
	details := deviceDetails{Namespace: v.r.PathValue("namespace"), Name: v.r.PathValue("name")}
	details.Explanation = explain.Instance(v.Snapshot, details.Namespace, details.Name)
	details.History = v.history("Instance", details.Namespace, details.Name)
	instance := explain.Find(v.Instances, details.Namespace, details.Name)
	if instance == nil {
		return details.Name, details, false
	}
	details.Device = new(status.DeviceIn(v.Snapshot, instance))
	details.Slots = v.Slots(instance)
	details.Properties = slices.Sorted(maps.Keys(instance.Spec.BrokerProperties))
	details.Brokers = v.BrokersOf(instance)
	// Devices that come and go are Events of the Configuration, whose text has their names.
	for _, event := range v.history("Configuration", instance.Namespace, instance.Spec.ConfigurationName) {
		if strings.Contains(event.Message, instance.Name) {
			details.History = append(details.History, event)
		}
	}
	return details.Name, details, true
}

func configurations(v view) (string, any, bool) {
	return "Configurations", status.Of(v.Snapshot).Configurations, true
}

// configurationDetails is the page of one Configuration.
type configurationDetails struct {
	Namespace, Name string
	// Configuration is nil if it does not exist.
	Configuration *akriv0.Configuration
	Devices       []status.Device
	MoreDevices   int
	History       []Event
	Explanation   explain.Explanation
	// Unasked is true if no device matches, and the console may not ask the handlers why.
	Unasked bool
}

func configuration(v view) (string, any, bool) {
	details := configurationDetails{Namespace: v.r.PathValue("namespace"), Name: v.r.PathValue("name")}
	details.Explanation = explain.Configuration(v.Snapshot, details.Namespace, details.Name)
	details.History = v.history("Configuration", details.Namespace, details.Name)
	details.Configuration = explain.Find(v.Configurations, details.Namespace, details.Name)
	if details.Configuration == nil {
		return details.Name, details, false
	}
	if cause := details.Explanation.Cause(); cause != nil && cause.ID == explain.NothingMatched {
		if ask := v.viewer.Closest; ask != nil {
			cause.Closest = ask(v.r.Context(), v.Snapshot, details.Configuration)
		} else {
			details.Unasked = true
		}
	}
	for _, instance := range v.InstancesOf(details.Configuration) {
		details.Devices = append(details.Devices, status.DeviceIn(v.Snapshot, instance))
	}
	if more := len(details.Devices) - maxHistory; more > 0 {
		details.Devices, details.MoreDevices = details.Devices[:maxHistory], more
	}
	return details.Name, details, true
}

func pod(v view) (string, any, bool) {
	e := explain.Pod(v.Snapshot, v.r.PathValue("namespace"), v.r.PathValue("name"))
	cause := e.Cause()
	return e.Name, e, cause == nil || cause.ID != explain.NotFound
}

// handlerTable has the states of handlers by node.
type handlerTable struct {
	Names []string
	Nodes []status.Node
	// Endpoints are those of each node, by the name of the handler.
	Endpoints map[string]map[string][]status.Handler
	// Many is true if the status of Configurations lists only nodes with problems.
	Many bool
}

// statusNodes is the number of nodes up to which the status of a Configuration lists all.
const statusNodes = 32

func handlers(v view) (string, any, bool) {
	byNode := map[string]map[string][]status.Handler{}
	names := map[string]bool{}
	for _, h := range status.Handlers(v.Snapshot) {
		if byNode[h.Node] == nil {
			byNode[h.Node] = map[string][]status.Handler{}
		}
		byNode[h.Node][h.Name] = append(byNode[h.Node][h.Name], h)
		names[h.Name] = true
	}
	nodes := status.Of(v.Snapshot).Nodes
	for name := range byNode {
		if !slices.ContainsFunc(nodes, func(n status.Node) bool { return n.Name == name }) {
			nodes = append(nodes, status.Node{Name: name, Verdict: explain.Verdict{State: explain.Skipped, Message: "the Node is not known"}})
		}
	}
	slices.SortFunc(nodes, func(a, b status.Node) int { return cmp.Compare(a.Name, b.Name) })
	return "Handlers", handlerTable{
		Names: slices.Sorted(maps.Keys(names)), Nodes: nodes[:min(len(nodes), maxRows)], Endpoints: byNode, Many: len(nodes) > statusNodes,
	}, true
}

func events(v view) (string, any, bool) {
	all := v.viewer.Events()
	return "Events", all[:min(len(all), maxEvents)], true
}

// history returns the newest Events about an object.
func (v view) history(kind, namespace, name string) []Event {
	var found []Event
	for _, event := range v.viewer.Events() {
		object := event.InvolvedObject
		if object.Kind == kind && object.Namespace == namespace && object.Name == name && len(found) < maxHistory {
			found = append(found, event)
		}
	}
	return found
}
