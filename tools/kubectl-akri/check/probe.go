package check

import (
	"time"

	"akri.sh/libs/inspect/explain"
)

// Probed returns the result of a Pod that requested a device.
func Probed(resource, node string, verdict explain.Verdict, took time.Duration) Result {
	if verdict.State == explain.Works {
		return passed("probe of "+resource, "a Pod on "+node+" got it, and ended after "+took.Round(100*time.Millisecond).String())
	}
	result := resultOf(verdict, Failed)
	result.Name = "probe of " + resource
	return result
}

// NotProbed returns the result for a device without a free slot.
func NotProbed(device string) Result {
	return Result{Name: "probe of " + device, Outcome: Warning, Message: "not probed: all slots are in use", Remedies: []explain.Remedy{{
		Text: "List who uses them.", Command: "kubectl akri slots --all-namespaces",
	}}}
}
