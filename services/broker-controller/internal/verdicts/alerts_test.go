package verdicts

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// covered has the alerts that fire when subjects do not work of which no alert reads
// `akri_verdicts`, and why these are enough.
var covered = map[string]struct {
	alerts []string
	reason string
}{
	"devices": {[]string{"AkriDevicesNotWorking"}, "it reads the condition with the verdict, and names the Configuration"},
	"brokers": {[]string{"AkriBrokersNotWorking"}, "it reads the condition with the verdict, and names the Configuration"},
	"device":  {[]string{"AkriDevicesNotWorking"}, "the devices of its Configuration do not all work"},
	"broker":  {[]string{"AkriBrokersNotWorking"}, "a broker is missing; Pods of users are not Akri's to alert on"},
	"handler": {[]string{"AkriDevicesNotWorking", "AkriHandlerOffline"}, "a handler without a Configuration has no verdict"},
	"node":    {[]string{"AkriServiceNotWorking", "AkriNodesNotReporting", "AkriDevicesNotWorking"}, "its Pods, reports or devices do not work"},
}

// Each kind of subject that can be broken has an alert: one that reads the metric, or others that
// the runbook names.
func TestEachSubjectHasAnAlert(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile("../../../../" + file)
		require.NoError(t, err)
		return string(text)
	}
	alerts, runbook := read("charts/akri/files/alerts.yaml"), read("docs/runbook.md")
	for _, kind := range kinds {
		if strings.Contains(alerts, `akri_verdicts{subject="`+kind+`"`) {
			require.Empty(t, covered[kind], "%s has an alert of its own", kind)
			continue
		}
		require.NotEmpty(t, covered[kind].reason, "no alert fires for a broken %s", kind)
		for _, alert := range covered[kind].alerts {
			require.Contains(t, alerts, "- alert: "+alert+"\n")
		}
		require.Contains(t, runbook, "| `"+kind+"` | "+strings.Join(covered[kind].alerts, ", ")+" |")
	}
}
