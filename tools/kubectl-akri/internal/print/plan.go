package print

import (
	"fmt"
	"io"
	"strings"

	"akri.sh/tools/kubectl-akri/internal/forget"
)

// Plan writes what will be removed.
func Plan(w io.Writer, plan forget.Plan) {
	if len(plan.Changes) == 0 {
		fmt.Fprintf(w, "No Instance lists the node %s or has a slot that it holds.\n", plan.Node)
		return
	}
	rows := [][]string{{"NAMESPACE", "INSTANCE", "DEVICE", "CHANGE", "SLOTS RELEASED"}}
	for _, change := range plan.Changes {
		what := "remove the node"
		if change.Delete {
			what = "delete the Instance"
		}
		rows = append(rows, []string{change.Namespace, change.Instance, change.DeviceID, what, orNone(strings.Join(change.Slots, ","))})
	}
	table(w, rows...)
}
