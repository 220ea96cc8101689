package controller

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// seenClaims has the existing claims.
type seenClaims map[types.UID]seenClaim

type seenClaim struct {
	since time.Time
	// wasAllocated means that a device of Akri was allocated to the claim at some time.
	wasAllocated bool
}

// add returns whether a device was allocated to the claim since the last call. Claims in the first
// list are not new.
func (s seenClaims) add(claim *resourcev1.ResourceClaim) (newlyAllocated bool) {
	seen, exists := s[claim.UID]
	if !exists {
		seen.since = time.Now()
	}
	isAllocated := len(allocated(claim)) > 0
	newlyAllocated = exists && isAllocated && !seen.wasAllocated
	seen.wasAllocated = seen.wasAllocated || isAllocated
	s[claim.UID] = seen
	return newlyAllocated
}

func (s seenClaims) remove(claim *resourcev1.ResourceClaim) seenClaim {
	defer delete(s, claim.UID)
	return s[claim.UID]
}

// countedTwice is longer than the time for which the scheduler counts an allocation twice.
const countedTwice = 2 * time.Second

// claimAllocated makes the scheduler retry the Pods that wait for a device with several slots.
// Until the scheduler has seen its own write of an allocation, for up to about a second, it counts
// the slots of the claim twice, and refuses Pods for which slots are free. It retries them after a
// change of a slice, otherwise up to five minutes later.
func (c *controller) claimAllocated(claim *resourcev1.ResourceClaim) {
	for _, result := range allocated(claim) {
		namespace, instanceName := akriv0.InstanceOfDevice(result.Pool, result.Device)
		instance, exists := c.Cache.Instances.Get(namespace + "/" + instanceName)
		if exists && instance.Spec.Capacity > 1 && c.features.ConsumableCapacity {
			c.addAgain(key{name: result.Pool}, countedTwice)
		}
	}
}

// claimDeleted makes the scheduler retry the Pods that wait for a device of a deleted claim. It
// does so itself only if the claim was deallocated before, if a slice changes, or after five
// minutes.
//
// If it cannot bind a Pod, for example because the Pod was deleted meanwhile, it deletes the claim
// that it made for the Pod's extended resources without deallocating it. If the garbage collector
// deletes such a claim while the scheduler binds the Pod, the scheduler keeps the device until
// BindingTimeout.
func (c *controller) claimDeleted(claim *resourcev1.ResourceClaim, seen seenClaim) {
	for _, result := range allocated(claim) {
		c.queue.Add(key{name: result.Pool, again: true})
	}
	for _, request := range claim.Spec.Devices.Requests {
		class := key{isClass: true, name: request.Exactly.DeviceClassName, again: true}
		if !seen.wasAllocated {
			c.queue.Add(class)
		}
		if time.Since(seen.since) < c.BindingTimeout {
			c.addAgain(class, c.BindingTimeout)
		}
	}
}
