package print

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"akri.sh/libs/trial"
	"akri.sh/tools/kubectl-akri/internal/try"
)

// Trial writes the devices that match, the nodes without a match, and the problems.
func Trial(w io.Writer, results []trial.Result, wide bool) {
	rows := foundDevices(results, wide)
	if len(rows) > 0 {
		table(w, append([][]string{{"NODES", "DEVICE", "SHARED", "DEVICE NODES", "PROPERTIES"}}, rows...)...)
	}
	var unmatched []string
	problems := map[string][]string{} // nodes by text
	for _, result := range results {
		if result.Answered && len(result.Devices) == 0 {
			unmatched = append(unmatched, result.Node)
		}
		for _, problem := range result.Problems {
			text := problem.Reason + ": " + problem.Message
			problems[text] = append(problems[text], result.Node)
		}
	}
	separate := len(rows) > 0
	paragraph := func(format string, arguments ...any) {
		if separate {
			fmt.Fprintln(w)
		}
		separate = true
		fmt.Fprintf(w, format+"\n", arguments...)
	}
	if len(unmatched) > 0 {
		paragraph("No device matches on %s.", strings.Join(unmatched, ", "))
	}
	for _, text := range slices.Sorted(maps.Keys(problems)) {
		paragraph("%s: %s", strings.Join(problems[text], ", "), text)
	}
	// The details are right if a node has found a device.
	if groups := try.Closest(results); len(groups) > 0 && len(rows) == 0 {
		if separate {
			fmt.Fprintln(w)
		}
		closest(w, "", groups)
	}
}

// foundDevices returns one row for each device. A shared device that several nodes see is one
// device.
func foundDevices(results []trial.Result, wide bool) [][]string {
	type found struct {
		trial.Device
		nodes []string
	}
	var devices []*found
	shared := map[string]*found{}
	for _, result := range results {
		for _, device := range result.Devices {
			if other := shared[device.ID]; other != nil && device.Shared {
				other.nodes = append(other.nodes, result.Node)
				continue
			}
			next := &found{device, []string{result.Node}}
			devices = append(devices, next)
			if device.Shared {
				shared[device.ID] = next
			}
		}
	}
	slices.SortStableFunc(devices, func(a, b *found) int { return cmp.Compare(a.ID, b.ID) })
	var rows [][]string
	for _, device := range devices {
		rows = append(rows, []string{
			short(device.nodes, wide), device.ID, fmt.Sprint(device.Shared), orNone(strings.Join(device.DeviceNodes, ",")), properties(device.Properties, wide),
		})
	}
	return rows
}

// properties lists names and values, clipped unless wide.
func properties(all map[string]string, wide bool) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, name+"="+strings.Join(strings.Fields(all[name]), " "))
	}
	text := orNone(strings.Join(parts, " "))
	if wide {
		return text
	}
	return clip(text)
}
