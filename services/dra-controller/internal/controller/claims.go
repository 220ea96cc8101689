package controller

import (
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/services/dra-controller/internal/desired"
)

// seenClaims has the existing claims.
type seenClaims map[types.UID]seenClaim

type seenClaim struct {
	since time.Time
	// wasAllocated means that a device of Akri was allocated to the claim at some time.
	wasAllocated bool
}

func (s seenClaims) add(claim *resourcev1.ResourceClaim) {
	seen, exists := s[claim.UID]
	if !exists {
		seen.since = time.Now()
	}
	seen.wasAllocated = seen.wasAllocated || len(allocated(claim)) > 0
	s[claim.UID] = seen
}

func (s seenClaims) remove(claim *resourcev1.ResourceClaim) seenClaim {
	defer delete(s, claim.UID)
	return s[claim.UID]
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
		namespace, instance, _ := strings.Cut(result.Pool, "/")
		c.queue.Add(key{name: desired.SliceName(namespace, instance), again: true})
	}
	for _, request := range claim.Spec.Devices.Requests {
		class := key{isClass: true, name: request.Exactly.DeviceClassName, again: true}
		if !seen.wasAllocated {
			c.queue.Add(class)
		}
		if time.Since(seen.since) < c.BindingTimeout {
			c.queue.AddAfter(class, c.BindingTimeout)
		}
	}
}
