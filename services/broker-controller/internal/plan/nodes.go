package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/grace"
)

// Failure records that brokers did not start on a node.
type Failure struct {
	// At is when the last Pod was deleted.
	At time.Time
	// Count is the number of failures since a broker ran on the node, at least 1.
	Count int
}

const maxShift = 10 // a larger shift would overflow

// retryAt is when the node can replace another node on which no broker starts.
func (f Failure) retryAt(startTimeout time.Duration) time.Time {
	return f.At.Add(min(startTimeout<<min(f.Count, maxShift), maxBackoff))
}

// Preference for a node, in increasing order.
const (
	failedRecently = iota
	doesNotStart
	failedBefore
	untried
	hasPod
	hasRunningPod
)

// candidate is a node that can have a broker.
type candidate struct {
	name       string
	preference int
	failedAt   time.Time
	retryAt    time.Time
}

// selection is the result of selectPods.
type selection struct {
	// selected Pods, by name.
	selected map[string]bool
	// moved Pods do not start and are not selected, because another node has precedence.
	moved map[string]bool
	// retry is when another node can replace a selected Pod that does not start.
	retry grace.Next
}

// selectPods selects as many Pods as the capacity allows: running Pods first, then existing ones,
// then by name. Nodes on which no broker starts come last, the longest ago first.
func selectPods(now time.Time, desired Desired, existing []Pod) selection {
	candidates := rankNodes(now, desired, existing)
	capacity := min(max(desired.Capacity, 0), len(candidates))
	s := selection{selected: map[string]bool{}, moved: map[string]bool{}}
	waiting := false
	for _, c := range candidates[:capacity] {
		s.selected[c.name] = true
		waiting = waiting || c.preference == doesNotStart
	}
	for _, c := range candidates[capacity:] {
		switch {
		case c.preference == doesNotStart && capacity > 0:
			s.moved[c.name] = true
		case waiting:
			s.retry.Include(c.retryAt)
		}
	}
	return s
}

func rankNodes(now time.Time, desired Desired, existing []Pod) []candidate {
	pods := map[string]Pod{}
	for _, pod := range existing {
		pods[pod.Name] = pod
	}
	var candidates []candidate
	for _, name := range slices.Sorted(maps.Keys(desired.Nodes)) {
		c := candidate{name: name, preference: untried}
		failure, failed := desired.Failures[name]
		if failed {
			c.failedAt, c.retryAt, c.preference = failure.At, failure.retryAt(desired.StartTimeout), failedBefore
			if now.Before(c.retryAt) {
				c.preference = failedRecently
			}
		}
		if pod, ok := pods[name]; ok {
			c.preference = preferencePod(now, desired, pod)
		}
		candidates = append(candidates, c)
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.preference, a.preference), a.failedAt.Compare(b.failedAt))
	})
	return candidates
}

// preferencePod returns the preference for the node of an existing Pod. A Pod that is being deleted
// keeps its place, because its slot is in use until it is gone.
func preferencePod(now time.Time, desired Desired, pod Pod) int {
	switch {
	case pod.Phase == corev1.PodRunning && !pod.Deleting:
		return hasRunningPod
	case pod.waitsToStart(desired.Hash) && pod.start(desired.StartTimeout).Over(now):
		return doesNotStart
	}
	return hasPod
}

// waitsToStart reports whether the Pod cannot start on its node with the current spec.
func (p Pod) waitsToStart(hash string) bool {
	return p.Blocked && !p.Deleting && !p.Foreign && (p.Hash == "" || p.Hash == hash)
}

// start is the wait for the Pod to start on its node. A Pod that was rejected counts with its
// predecessors, which were replaced after their backoff.
func (p Pod) start(timeout time.Duration) grace.Wait {
	wait := grace.Wait{Awaited: "the Pod starts on its node", Since: p.Pending, For: timeout, Then: "another node gets a broker"}
	if p.Phase != corev1.PodPending {
		var before time.Duration
		for attempt := range min(p.Attempt, maxShift) {
			before += Backoff(attempt)
		}
		wait.Since, wait.For = p.Seen, max(timeout-before, Backoff(p.Attempt))
	}
	return wait
}
