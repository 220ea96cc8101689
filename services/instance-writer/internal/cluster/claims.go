package cluster

import (
	"context"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// AllocatedClaim returns the ResourceClaim with the uid, and the devices of the driver akri.sh that
// are allocated to it. It returns none if there is no such claim, or if it is not allocated. It
// reads the claim from the API server: a claim is prepared right after its allocation, which a
// cache may lack.
func (c *Cluster) AllocatedClaim(ctx context.Context, key types.NamespacedName, uid types.UID) (
	claim *resourcev1.ResourceClaim, devices []resourcev1.DeviceRequestAllocationResult, err error,
) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	claim, err = c.claimClient.In(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("get ResourceClaim: %w", err)
	case claim.UID != uid || claim.Status.Allocation == nil:
		return nil, nil, nil
	}

	devices = slices.DeleteFunc(claim.Status.Allocation.Devices.Results, func(result resourcev1.DeviceRequestAllocationResult) bool {
		return result.Driver != akriv0.Driver
	})
	return claim, devices, nil
}
