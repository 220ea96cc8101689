package print

import (
	"fmt"
	"io"
	"strings"
	"time"

	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/status"
)

// maxNodes is the number of nodes up to which status lists those without problems, too.
const maxNodes = 20

// Overview writes the state of the installation on one screen.
func Overview(w io.Writer, o status.Overview, client string, wide bool) {
	versions := strings.Join(o.Versions, ", ")
	if len(o.Versions) > 1 {
		versions += " (VERSION SKEW)"
	}
	fmt.Fprintf(w, "Akri %s, kubectl akri %s\n", orNone(versions), client)
	fmt.Fprintf(w, "%s, %d of %s held, %d of %s ready\n", explain.Plural(o.Devices, "device"),
		o.Slots.Used, explain.Plural(o.Slots.Total, "slot"), o.Brokers.Used, explain.Plural(o.Brokers.Total, "broker"))
	if len(o.Unreadable) > 0 {
		fmt.Fprintf(w, "You may not list: %s\n", strings.Join(o.Unreadable, ", "))
	}
	fmt.Fprintln(w)
	services(w, o.Services)
	fmt.Fprintln(w)
	nodes(w, o.Nodes, wide)
	fmt.Fprintln(w)
	configurations(w, o.Configurations)
}

func services(w io.Writer, services []explain.Service) {
	rows := [][]string{{"SERVICE", "KIND", "READY", "VERSION", "NOT READY ON"}}
	for _, s := range services {
		rows = append(rows, []string{
			s.Component, s.Kind, fmt.Sprintf("%d/%d", s.Ready, s.Desired), strings.Join(s.Versions, ", "), strings.Join(s.NotReadyOn, ", "),
		})
	}
	table(w, rows...)
}

func nodes(w io.Writer, nodes []status.Node, wide bool) {
	rows := [][]string{{"NODE", "STATE", "DEVICES", "SLOTS HELD"}}
	left := 0
	for _, n := range nodes {
		state := nodeState(n)
		if n.Verdict.State == explain.Works && len(nodes) > maxNodes && !wide {
			left++
			continue
		}
		rows = append(rows, []string{n.Name, state, fmt.Sprint(n.Devices), fmt.Sprint(n.SlotsHeld)})
	}
	table(w, rows...)
	if left > 0 {
		fmt.Fprintf(w, "and %s without problems (-o wide lists them)\n", explain.Plural(left, "node"))
	}
}

func nodeState(n status.Node) string {
	if n.Verdict.State == explain.Works {
		return n.Verdict.State.Word()
	}
	return n.Verdict.State.Word() + ": " + n.Verdict.Summary()
}

func configurations(w io.Writer, all []status.Configuration) {
	rows := [][]string{{"NAMESPACE", "CONFIGURATION", "HANDLER", "DEVICES", "SLOTS", "BROKERS", "DEVICES WORK", "BROKERS WORK"}}
	for _, c := range all {
		rows = append(rows, []string{
			c.Namespace, c.Name, c.Handler, fmt.Sprint(c.Devices), c.Slots.String(), c.Brokers.String(),
			c.DevicesVerdict.State.Word(), c.BrokersVerdict.State.Word(),
		})
	}
	table(w, rows...)
	for _, c := range all {
		var summary []string
		for _, verdict := range []explain.Verdict{c.DevicesVerdict, c.BrokersVerdict} {
			if verdict.State != explain.Works && verdict.State != explain.Skipped {
				summary = append(summary, fmt.Sprintf("\n%s/%s, %s: %s: %s", c.Namespace, c.Name, strings.ToLower(verdict.Subject.Kind), verdict.State.Word(), verdict.Summary()))
			}
		}
		if len(summary) > 0 {
			fmt.Fprintf(w, "%s\n  kubectl akri explain configuration %s --namespace %s\n", strings.Join(summary, ""), c.Name, c.Namespace)
		}
	}
}

// Devices writes one line for each device.
func Devices(w io.Writer, devices []status.Device, now time.Time, wide bool) {
	header := []string{"NAMESPACE", "INSTANCE", "CONFIGURATION", "DEVICE", "SHARED", "NODES", "SLOTS", "STATE", "AGE"}
	if wide {
		header = append(header, "HANDLER", "RESOURCE")
	}
	rows := [][]string{header}
	for _, d := range devices {
		state := explain.Skipped
		if d.Verdict != nil {
			state = d.Verdict.State
		}
		row := []string{
			d.Namespace, d.Instance, d.Configuration, d.ID, fmt.Sprint(d.Shared), short(d.Nodes, wide), d.Slots.String(), state.Word(), age(d.Created.Time, now),
		}
		if wide {
			row = append(row, d.Handler, d.Resource)
		}
		rows = append(rows, row)
	}
	table(w, rows...)
}

// short lists at most three names.
func short(names []string, wide bool) string {
	if len(names) > 3 && !wide {
		return fmt.Sprintf("%s +%d", strings.Join(names[:3], ","), len(names)-3)
	}
	return orNone(strings.Join(names, ","))
}

// Slots writes one line for each slot.
func Slots(w io.Writer, slots []explain.Slot, wide bool) {
	header := []string{"NAMESPACE", "SLOT", "NODE", "POD"}
	if wide {
		header = []string{"NAMESPACE", "SLOT", "NODE", "POD", "RESOURCE", "CONFIGURATION"}
	}
	rows := [][]string{header}
	for _, s := range slots {
		node := s.Node
		if s.Problem != "" {
			node = "MALFORMED: " + s.Problem
		}
		row := []string{s.Namespace, s.Slot, orNone(node), orNone(strings.Join(s.Pods, ","))}
		if wide {
			row = append(row, orNone(s.Resource), s.Configuration)
		}
		rows = append(rows, row)
	}
	table(w, rows...)
}

// Handlers writes one line for each endpoint of a handler, with the verdict on the handler.
func Handlers(w io.Writer, handlers []status.Handler, now time.Time, wide bool) {
	header := []string{"NODE", "HANDLER", "STATUS", "STATE", "CONFIGURATIONS"}
	if wide {
		header = append(header, "ENDPOINT")
	}
	rows := [][]string{header}
	for _, h := range handlers {
		state := string(h.Status)
		if h.OfflineSince != nil {
			state += " for " + age(h.OfflineSince.Time, now)
		}
		row := []string{orNone(h.Node), h.Name, orNone(state), h.Verdict.State.Word(), strings.Join(h.Configurations, ",")}
		if wide {
			row = append(row, orNone(h.Endpoint))
		}
		rows = append(rows, row)
	}
	table(w, rows...)
}
