// Package plan decides what should happen to the brokers of an Instance, from what is there. It is
// pure: no clock, no API server.
package plan

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reason says why a Pod is removed.
type Reason string

// Reasons.
const (
	// Unwanted: the Instance is gone or no longer lists the node, the Configuration no longer asks
	// for the broker, or the capacity has become smaller.
	Unwanted Reason = "no longer wanted"
	// Ended: it failed, succeeded or was lost.
	Ended Reason = "ended"
	// Stuck: a kubelet has had it for too long without starting it.
	Stuck Reason = "pending for too long"
	// Outdated: the Configuration asks for another spec.
	Outdated Reason = "outdated"
)

const (
	firstDelay = time.Second
	maxDelay   = 5 * time.Minute
	// settled is how long a broker must have lived for its end to be no reason for back-off.
	settled = 2 * maxDelay
)

// Pod is what is known of a broker Pod.
type Pod struct {
	Name    string
	Phase   corev1.PodPhase
	Created time.Time
	// Started is when a kubelet took it; zero: none did yet.
	Started time.Time
	// Deleting: it is on its way out, and its name is still taken.
	Deleting bool
	// Foreign: its owner is an Instance of the same name that is no more.
	Foreign bool
	// Hash of the spec it was made from; empty: unknown, never outdated.
	Hash string
	// Attempt counts the Pods before it that ended soon.
	Attempt int
}

// Wanted is what should be there.
type Wanted struct {
	// Pods maps the name of each Pod that may be there to its node.
	Pods map[string]string
	// Capacity is how many of them.
	Capacity int
	// Hash of the spec.
	Hash string
	// MayUpdate: one running Pod may be replaced because it is outdated.
	MayUpdate bool
	// StuckAfter is how long a Pod may be pending.
	StuckAfter time.Duration
}

// Creation of a Pod.
type Creation struct {
	Name, Node string
	Attempt    int
}

// Removal of a Pod.
type Removal struct {
	Name   string
	Reason Reason
	// Now: without waiting for its containers, which have ended. Its name is free at once.
	Now bool
}

// Pods is the answer: first the removals, then the creations.
type Pods struct {
	Remove []Removal
	Create []Creation
	// Again: how long until something is due although nothing happens; zero: never.
	Again time.Duration
	// Waiting: a running Pod is outdated and may not be replaced yet.
	Waiting bool
}

// ForPods compares what is there with what is wanted.
func ForPods(now time.Time, wanted Wanted, there []Pod) Pods {
	there = slices.SortedFunc(slices.Values(there), func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	chosen := choose(wanted, there)
	var plan Pods
	taken := map[string]bool{}
	for _, pod := range there {
		taken[pod.Name] = true
		switch {
		case pod.Deleting:
		case pod.Foreign || !chosen[pod.Name]:
			plan.remove(pod, Unwanted, false)
		default:
			plan.keepOrReplace(now, &wanted, pod)
		}
	}
	for _, name := range names(wanted.Pods) {
		if chosen[name] && !taken[name] {
			plan.Create = append(plan.Create, Creation{Name: name, Node: wanted.Pods[name]})
		}
	}
	return plan
}

// choose picks as many Pods as there is capacity for: those that run, then those that are there,
// then by name.
func choose(wanted Wanted, there []Pod) map[string]bool {
	rank := map[string]int{}
	for _, pod := range there {
		rank[pod.Name] = 1
		if pod.Phase == corev1.PodRunning && !pod.Deleting {
			rank[pod.Name] = 2
		}
	}
	candidates := names(wanted.Pods)
	slices.SortStableFunc(candidates, func(a, b string) int { return cmp.Compare(rank[b], rank[a]) })
	chosen := map[string]bool{}
	for _, name := range candidates[:min(max(wanted.Capacity, 0), len(candidates))] {
		chosen[name] = true
	}
	return chosen
}

func names(pods map[string]string) []string {
	sorted := make([]string, 0, len(pods))
	for name := range pods {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	return sorted
}

func (p *Pods) keepOrReplace(now time.Time, wanted *Wanted, pod Pod) {
	outdated := pod.Hash != "" && pod.Hash != wanted.Hash
	switch pod.Phase {
	case corev1.PodRunning:
		p.update(outdated, wanted, pod)
	case corev1.PodPending, "":
		p.unstick(now, outdated, wanted.StuckAfter, pod)
	default:
		p.revive(now, outdated, wanted, pod)
	}
}

func (p *Pods) update(outdated bool, wanted *Wanted, pod Pod) {
	switch {
	case !outdated:
	case wanted.MayUpdate:
		wanted.MayUpdate = false
		p.remove(pod, Outdated, false)
	default:
		p.Waiting = true
	}
}

// unstick waits for a Pod that no kubelet has yet: the scheduler will find it a node as soon as
// there is one.
func (p *Pods) unstick(now time.Time, outdated bool, stuckAfter time.Duration, pod Pod) {
	due := pod.Started.Add(stuckAfter)
	switch {
	case outdated:
		p.remove(pod, Outdated, false)
	case pod.Started.IsZero():
	case now.Before(due):
		p.wake(due.Sub(now))
	default:
		p.remove(pod, Stuck, false)
	}
}

// revive replaces a Pod that ended: at once when it had settled, otherwise not before its back-off
// has passed since it was made. One that ended without a kubelet is left to who ended it, for as
// long as a pending one would be.
func (p *Pods) revive(now time.Time, outdated bool, wanted *Wanted, pod Pod) {
	due := pod.Created.Add(Delay(pod.Attempt))
	attempt := pod.Attempt + 1
	switch {
	case outdated: // what failed was another spec
		due, attempt = now, 0
	case pod.Started.IsZero():
		due = pod.Created.Add(wanted.StuckAfter)
	case now.Sub(pod.Created) >= settled:
		attempt = 0
	}
	if now.Before(due) {
		p.wake(due.Sub(now))
		return
	}
	p.remove(pod, Ended, true)
	p.Create = append(p.Create, Creation{Name: pod.Name, Node: wanted.Pods[pod.Name], Attempt: attempt})
}

func (p *Pods) remove(pod Pod, reason Reason, now bool) {
	p.Remove = append(p.Remove, Removal{Name: pod.Name, Reason: reason, Now: now})
}

func (p *Pods) wake(after time.Duration) {
	if p.Again == 0 || after < p.Again {
		p.Again = after
	}
}

// Delay is the least time between a broker Pod and the one that replaces it.
func Delay(attempt int) time.Duration {
	if attempt > 10 { // beyond the maximum; a larger shift would overflow
		return maxDelay
	}
	return min(firstDelay<<attempt, maxDelay)
}
