// Package plan decides which brokers of an Instance to create, replace and delete. It is pure: it
// reads no clock and calls no API server.
package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/grace"
)

// Reason for the deletion of a Pod.
type Reason int

// Reasons.
const (
	// Unneeded: the Instance is gone or does not list the node, the Configuration has no broker
	// Pod, or the capacity is too small.
	Unneeded Reason = iota
	// Ended: the Pod failed, succeeded or its phase is unknown.
	Ended
	// Stuck: a kubelet has accepted the Pod and not started it in time.
	Stuck
	// Outdated: the broker spec has changed.
	Outdated
	// Moved: the Pod did not start on its node in time, and another node gets a broker.
	Moved
	// WithoutDevice: the scheduler has bound the Pod without its device.
	WithoutDevice
)

const (
	initialBackoff = time.Second
	maxBackoff     = 5 * time.Minute
	// backoffReset is the lifetime after which a Pod that ends is replaced without backoff.
	backoffReset = 2 * maxBackoff
)

// Times are when this process first saw a Pod and its states: see package grace. The creation time
// of a Pod and the times in its status come from other machines.
type Times struct {
	// Seen is when this process first saw the Pod.
	Seen time.Time
	// Pending is since when this process has seen the Pod pending. Zero means that it is not
	// pending. A Pod with init containers is pending again while its node boots.
	Pending time.Time
	// Accepted is when this process first saw that a kubelet had accepted the Pod. Zero means not
	// yet.
	Accepted time.Time
}

// Pod is the state of an existing broker Pod.
type Pod struct {
	Times

	Name  string
	Phase corev1.PodPhase
	// Deleting means that the Pod is being deleted. Its name is still in use.
	Deleting bool
	// Foreign means that its owner is an earlier Instance of the same name.
	Foreign bool
	// Hash of its spec. Empty means unknown; such a Pod is never outdated.
	Hash string
	// Attempt counts the previous Pods that ended soon.
	Attempt int
	// Blocked means that the Pod cannot be scheduled or started on its node at present, or that the
	// node rejected it.
	Blocked bool
	// WithoutDevice means that the scheduler has bound the Pod to a node without the device that
	// the Pod requests. Its containers run without the device, or will.
	WithoutDevice bool
}

// Desired is the desired state of the broker Pods of an Instance.
type Desired struct {
	// Nodes maps the names of the possible Pods to their nodes.
	Nodes map[string]string
	// Capacity is the maximum number of Pods.
	Capacity int
	// Hash of the spec.
	Hash string
	// MayUpdate permits the replacement of one running Pod that is outdated.
	MayUpdate bool
	// StuckAfter is how long a Pod may be pending on its node.
	StuckAfter time.Duration
	// StartTimeout is how long a Pod may be Blocked before another node gets a broker instead.
	StartTimeout time.Duration
	// Failures are the nodes on which no broker started, by the name of the Pod.
	Failures map[string]Failure
}

// Creation of a Pod.
type Creation struct {
	Name, Node string
	Attempt    int
}

// Deletion of a Pod.
type Deletion struct {
	Name   string
	Reason Reason
	// Force deletes without a grace period, because the containers have ended or have no device.
	// The name is free at once.
	Force bool
}

// Pods are the changes to make: the deletions first, then the creations.
type Pods struct {
	Delete []Deletion
	Create []Creation
	// RequeueAfter is when a change is due even if no object changes. Zero means never.
	RequeueAfter time.Duration
	// UpdatePending means that a running Pod is outdated and MayUpdate does not permit its
	// replacement.
	UpdatePending bool
}

// ForPods compares the existing Pods with the desired state.
func ForPods(now time.Time, desired Desired, existing []Pod) Pods {
	existing = slices.SortedFunc(slices.Values(existing), func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	nodes := selectPods(now, desired, existing)
	var plan Pods
	plan.requeueAfter(nodes.retry.At.Sub(now))
	inUse := map[string]bool{}
	for _, pod := range existing {
		inUse[pod.Name] = true
		switch {
		case pod.Deleting:
		case nodes.moved[pod.Name]:
			plan.delete(pod, Moved, pod.Phase != corev1.PodPending) // a Pod that was rejected is gone at once
		case pod.Foreign || !nodes.selected[pod.Name]:
			plan.delete(pod, Unneeded, false)
		case pod.WithoutDevice:
			plan.replaceWithoutDevice(now, &desired, pod)
		default:
			plan.keepOrReplace(now, &desired, pod)
		}
	}
	plan.createMissing(desired, nodes.selected, inUse)
	return plan
}

// createMissing creates the selected Pods. A Pod that replaces a moved one is created when the
// moved one is gone.
func (p *Pods) createMissing(desired Desired, selected, inUse map[string]bool) {
	ending := 0
	for _, deletion := range p.Delete {
		if deletion.Reason == Moved && !deletion.Force {
			ending++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(selected)) {
		switch {
		case inUse[name]:
		case ending > 0:
			ending--
		default:
			p.Create = append(p.Create, Creation{Name: name, Node: desired.Nodes[name]})
		}
	}
}

func (p *Pods) keepOrReplace(now time.Time, desired *Desired, pod Pod) {
	outdated := pod.Hash != "" && pod.Hash != desired.Hash
	switch pod.Phase {
	case corev1.PodRunning:
		p.updateRunning(outdated, desired, pod)
	case corev1.PodPending:
		p.replaceStuck(now, outdated, desired.StuckAfter, pod)
		p.requeueBlocked(now, desired, pod)
	default:
		p.replaceEnded(now, outdated, desired, pod)
	}
}

// replaceWithoutDevice replaces a Pod that was bound without its device. The backoff is for a
// scheduler that does so each time.
func (p *Pods) replaceWithoutDevice(now time.Time, desired *Desired, pod Pod) {
	wait := grace.Wait{Awaited: "the Pod gets its device", Since: pod.Seen, For: Backoff(pod.Attempt), Then: "the Pod is replaced"}
	if !wait.Over(now) {
		p.requeueAfter(wait.Left(now))
		return
	}
	p.delete(pod, WithoutDevice, true)
	p.Create = append(p.Create, Creation{Name: pod.Name, Node: desired.Nodes[pod.Name], Attempt: pod.Attempt + 1})
}

func (p *Pods) updateRunning(outdated bool, desired *Desired, pod Pod) {
	switch {
	case !outdated:
	case desired.MayUpdate:
		desired.MayUpdate = false
		p.delete(pod, Outdated, false)
	default:
		p.UpdatePending = true
	}
}

// replaceStuck keeps a Pod that no kubelet has accepted: the scheduler binds it when a node is
// available.
func (p *Pods) replaceStuck(now time.Time, outdated bool, stuckAfter time.Duration, pod Pod) {
	start := grace.Wait{Awaited: "the Pod starts", Since: pod.Accepted, For: stuckAfter, Then: "it is replaced"}
	if pod.Pending.After(start.Since) {
		start.Since = pod.Pending
	}
	switch {
	case outdated:
		p.delete(pod, Outdated, false)
	case pod.Accepted.IsZero():
	case !start.Over(now):
		p.requeueAfter(start.Left(now))
	default:
		p.delete(pod, Stuck, false)
	}
}

// requeueBlocked makes the plan run again when another node can get a broker instead.
func (p *Pods) requeueBlocked(now time.Time, desired *Desired, pod Pod) {
	if len(desired.Nodes) > desired.Capacity && pod.waitsToStart(desired.Hash) {
		p.requeueAfter(pod.start(desired.StartTimeout).Left(now))
	}
}

// replaceEnded replaces a Pod that ended: at once if it lived long enough, else when the backoff
// since its creation has passed. A Pod that failed before a kubelet accepted it is kept for
// StuckAfter.
func (p *Pods) replaceEnded(now time.Time, outdated bool, desired *Desired, pod Pod) {
	ended := grace.Wait{Awaited: "the broker spec changes", Since: pod.Seen, For: Backoff(pod.Attempt), Then: "the Pod is replaced"}
	attempt := pod.Attempt + 1
	switch {
	case outdated: // the previous spec failed, so its backoff does not apply
		ended, attempt = grace.Wait{}, 0
	case pod.Accepted.IsZero():
		ended.For = desired.StuckAfter
	case now.Sub(pod.Seen) >= backoffReset:
		attempt = 0
	}
	if !ended.Over(now) {
		p.requeueAfter(ended.Left(now))
		p.requeueBlocked(now, desired, pod)
		return
	}
	p.delete(pod, Ended, true)
	p.Create = append(p.Create, Creation{Name: pod.Name, Node: desired.Nodes[pod.Name], Attempt: attempt})
}

func (p *Pods) delete(pod Pod, reason Reason, force bool) {
	p.Delete = append(p.Delete, Deletion{Name: pod.Name, Reason: reason, Force: force})
}

// requeueAfter makes the plan run again after the delay, unless it has passed.
func (p *Pods) requeueAfter(delay time.Duration) {
	if delay > 0 && (p.RequeueAfter == 0 || delay < p.RequeueAfter) {
		p.RequeueAfter = delay
	}
}

// Backoff returns the minimum time between the creation of a Pod and of its replacement.
func Backoff(attempt int) time.Duration {
	if attempt > 10 { // above the maximum; a larger shift would overflow
		return maxBackoff
	}
	return min(initialBackoff<<attempt, maxBackoff)
}
