package console

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/status"
)

// Values of the filter of slots.
const (
	slotsFree = "free"
	slotsHeld = "full"
)

func devices(v view) (string, any, bool) {
	var rows []row
	for _, d := range status.Devices(v.Snapshot, "") {
		slots := slotsFree
		if d.Slots.Used >= d.Slots.Total {
			slots = slotsHeld
		}
		rows = append(rows, row{
			Value: d,
			values: map[string][]string{
				"state": {string(d.Verdict.State)}, "namespace": {d.Namespace}, "configuration": {d.Namespace + "/" + d.Configuration},
				"handler": {d.Handler}, "node": d.Nodes, "slots": {slots},
			},
			words: append([]string{d.Namespace, d.Instance, d.Configuration, d.Handler, d.ID}, d.Nodes...),
		})
	}
	return "Devices", v.list("device", rows), true
}

func configurations(v view) (string, any, bool) {
	var rows []row
	for _, c := range status.Of(v.Snapshot).Configurations {
		rows = append(rows, row{
			Value: c,
			values: map[string][]string{
				"state": {string(c.DevicesVerdict.State), string(c.BrokersVerdict.State)}, "namespace": {c.Namespace}, "handler": {c.Handler},
			},
			words: []string{c.Namespace, c.Name, c.Handler, c.DevicesVerdict.Summary(), c.BrokersVerdict.Summary()},
		})
	}
	return "Configurations", v.list("Configuration", rows), true
}

func nodes(v view) (string, any, bool) {
	var rows []row
	for _, n := range status.Of(v.Snapshot).Nodes {
		rows = append(rows, row{
			Value: n, values: map[string][]string{"state": {string(n.Verdict.State)}}, words: []string{n.Name, n.Verdict.Summary()},
		})
	}
	return "Nodes", v.list("node", rows), true
}

// podRow is a Pod of Akri, or one that uses devices.
type podRow struct {
	*corev1.Pod

	Role    string
	Verdict explain.Verdict
}

// Roles of Pods.
const (
	roleAkri   = "Akri"
	roleBroker = "broker"
	roleUser   = "user of devices"
)

func (v view) podRow(pod *corev1.Pod) podRow {
	r := podRow{Pod: pod, Role: roleUser, Verdict: explain.Pod(v.Snapshot, pod.Namespace, pod.Name).Verdicts[0]}
	switch {
	case explain.IsAkri(pod):
		r.Role = roleAkri
	case pod.Labels[akriv0.ConfigurationLabel] != "":
		r.Role = roleBroker
	}
	return r
}

func pods(v view) (string, any, bool) {
	var rows []row
	for i := range v.Pods {
		r := v.podRow(&v.Pods[i])
		rows = append(rows, row{
			Value:  r,
			values: map[string][]string{"state": {string(r.Verdict.State)}, "kind": {r.Role}, "namespace": {r.Namespace}, "node": {r.Spec.NodeName}},
			words:  []string{r.Namespace, r.Name, r.Spec.NodeName, r.Role, r.Verdict.Summary()},
		})
	}
	return "Pods", v.list("Pod", rows), true
}

// handlerRow is a Discovery Handler that Configurations use.
type handlerRow struct {
	Verdict   explain.Verdict
	Endpoints []status.Handler
}

// statusNodes is the number of nodes up to which the status of a Configuration lists all.
const statusNodes = 32

func handlers(v view) (string, any, bool) {
	endpoints := map[string][]status.Handler{}
	for _, h := range status.Handlers(v.Snapshot) {
		if h.Node != "" {
			endpoints[h.Name] = append(endpoints[h.Name], h)
		}
	}

	var rows []row
	for _, verdict := range explain.Handlers(v.Snapshot) {
		name := verdict.Subject.Name
		r := row{
			Value:  handlerRow{verdict, endpoints[name]},
			values: map[string][]string{"state": {string(verdict.State)}, "handler": {name}},
			words:  []string{name, verdict.Summary()},
		}
		for _, h := range endpoints[name] {
			r.values["node"], r.words = append(r.values["node"], h.Node), append(r.words, h.Node)
		}
		rows = append(rows, r)
	}

	l := v.list("handler", rows)
	l.Above = len(v.Nodes) > statusNodes
	return "Handlers", l, true
}

// serviceRow is a workload of Akri, or a definition that does not fit to it.
type serviceRow struct {
	explain.Service

	Verdict explain.Verdict
}

func services(v view) (string, any, bool) {
	var rows []row
	all := v.Services()
	for _, verdict := range explain.ServiceVerdicts(v.Snapshot) {
		subject := verdict.Subject
		r := serviceRow{Verdict: verdict}
		r.Kind, r.Namespace, r.Name, r.Component = subject.Kind, subject.Namespace, subject.Name, subject.Name
		for _, service := range all {
			if service.Kind == subject.Kind && service.Namespace == subject.Namespace && service.Name == subject.Name {
				r.Service = service
			}
		}

		rows = append(rows, row{
			Value:  r,
			values: map[string][]string{"state": {string(verdict.State)}, "kind": {r.Kind}, "namespace": {r.Namespace}, "node": r.NotReadyOn},
			words:  append([]string{r.Component, r.Kind, r.Namespace, r.Name, verdict.Summary()}, r.NotReadyOn...),
		})
	}

	l := v.list("service", rows)
	l.Above = explain.Versions(all)
	return "Services", l, true
}

// eventRow is an Event with the page about its object, which can be gone.
type eventRow struct {
	Event

	Path string
}

func events(v view) (string, any, bool) {
	var rows []row
	for _, event := range v.eventsOf(func(corev1.ObjectReference) bool { return true }) {
		object := event.InvolvedObject
		rows = append(rows, row{
			Value:  event,
			values: map[string][]string{"type": {event.Type}, "kind": {object.Kind}, "namespace": {object.Namespace}},
			words:  []string{object.Kind, object.Namespace, object.Name, event.Reason, event.Message},
		})
	}
	return "Events", v.list("Event", rows), true
}

// history returns the newest Events about an object.
func (v view) history(kind, namespace, name string) []eventRow {
	found := v.eventsOf(func(object corev1.ObjectReference) bool {
		return object.Kind == kind && object.Namespace == namespace && object.Name == name
	})
	return found[:min(len(found), maxLines)]
}

// eventsOf returns the Events about objects, the newest first. Those about Pods that the pages do
// not show are left out.
func (v view) eventsOf(of func(corev1.ObjectReference) bool) []eventRow {
	var found []eventRow
	paths := v.paths()
	for _, event := range v.viewer.Events() {
		object := event.InvolvedObject
		if !of(object) {
			continue
		}
		path := paths[akriv0.Subject{Kind: object.Kind, Namespace: object.Namespace, Name: object.Name}]
		if path != "" || object.Kind != "Pod" {
			found = append(found, eventRow{event, path})
		}
	}
	return found
}

// paths returns the addresses of the pages about the objects that exist.
func (v view) paths() map[akriv0.Subject]string {
	subjects := slices.Concat(
		subjectsOf("Configuration", v.Configurations), subjectsOf("Instance", v.Instances), subjectsOf("Pod", v.Pods), subjectsOf("Node", v.Nodes),
	)
	paths := map[akriv0.Subject]string{}
	for _, subject := range subjects {
		paths[subject] = path(subject)
	}
	return paths
}

func subjectsOf[T any, P interface {
	*T
	metav1.Object
}](kind string, objects []T) []akriv0.Subject {
	var subjects []akriv0.Subject
	for i := range objects {
		subjects = append(subjects, akriv0.Subject{Kind: kind, Namespace: P(&objects[i]).GetNamespace(), Name: P(&objects[i]).GetName()})
	}
	return subjects
}
