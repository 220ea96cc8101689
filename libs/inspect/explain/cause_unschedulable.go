package explain

// Unschedulable means that the scheduler finds no node for a reason other than the device.
const Unschedulable CauseID = "Unschedulable"

// The rule applies to all messages for which no rule has a lower rank.
func init() {
	register(rule{Unschedulable, LinkScheduled, 100, refusedWith("", func(t target) []Remedy {
		return []Remedy{
			describePod("Read what the scheduler states about each node.", t.pod),
			remedy("Compare with the taints and free resources of the nodes that see the device.", "kubectl describe nodes"),
		}
	})})
}
