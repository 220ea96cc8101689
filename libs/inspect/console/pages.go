package console

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/trial"
)

const (
	// maxLines is the number of Events, devices and slots on the page of another object.
	maxLines = 50
	// maxNodes is the number of nodes in one cell.
	maxNodes = 5
)

// Event is an Event of the API server.
type Event = corev1.Event

var pages = map[string]page{
	"/{$}":                               {"overview.html", "/", overview},
	"/problems":                          {"problems.html", "/problems", problems},
	"/devices":                           {"devices.html", "/devices", devices},
	"/devices/{namespace}/{name}":        {"device.html", "/devices", device},
	"/configurations":                    {"configurations.html", "/configurations", configurations},
	"/configurations/{namespace}/{name}": {"configuration.html", "/configurations", configuration},
	"/nodes":                             {"nodes.html", "/nodes", nodes},
	"/nodes/{name}":                      {"node.html", "/nodes", node},
	"/pods":                              {"pods.html", "/pods", pods},
	"/pods/{namespace}/{name}":           {"pod.html", "/pods", pod},
	"/handlers":                          {"handlers.html", "/handlers", handlers},
	"/services":                          {"services.html", "/services", services},
	"/events":                            {"events.html", "/events", events},
}

var functions = template.FuncMap{
	"now":       func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"join":      func(texts []string) string { return strings.Join(texts, ", ") },
	"lower":     func(text any) string { return strings.ToLower(fmt.Sprint(text)) },
	"eventTime": func(event Event) time.Time { return explain.EventTime(&event) },
	"corrected": trial.Correction,
	"count":     explain.Plural,
	"noun":      func(n int, noun string) string { return strings.TrimPrefix(explain.Plural(n, noun), fmt.Sprint(n)+" ") },
	"path":      path,
	"title":     title,
	"label":     label,
	"cause":     causePage,
	"reason":    reasonPage,
	"first":     func(names []string) []string { return names[:min(len(names), maxNodes)] },
	"more":      func(names []string) int { return max(len(names)-maxNodes, 0) },
}

// label returns the text of a value of a filter.
func label(filter, value string) string {
	switch {
	case filter == "state":
		return explain.State(value).Word()
	case filter == "slots" && value == slotsFree:
		return "some are free"
	case filter == "slots":
		return "all are held"
	default:
		return value
	}
}
