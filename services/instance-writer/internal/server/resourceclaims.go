package server

import (
	"context"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Each call of a node reads a ResourceClaim from the API server. Further calls wait. The burst is
// for the claims of all Pods of a node that has started.
const (
	claimReadRate, claimReadBurst = 10, 1000
	maxNodes                      = 8192
)

// GetResourceClaim answers from the API server and the Instances only, because a node that asks is
// known, and a Pod that uses the claim is not.
func (s *Server) GetResourceClaim(
	ctx context.Context, request *instancev1.GetResourceClaimRequest,
) (*instancev1.GetResourceClaimResponse, error) {
	response, err := s.resourceClaim(ctx, request)
	if err != nil {
		return nil, toStatus(err)
	}
	return response, nil
}

func (s *Server) resourceClaim(
	ctx context.Context, request *instancev1.GetResourceClaimRequest,
) (*instancev1.GetResourceClaimResponse, error) {
	node, key := request.GetNode(), types.NamespacedName{Namespace: request.GetNamespace(), Name: request.GetName()}
	// Other names are no names of claims, and some have another meaning in the path of a request.
	if node == "" || validation.IsDNS1123Label(key.Namespace) != nil || validation.IsDNS1123Subdomain(key.Name) != nil {
		return nil, invalidRequestError("node, namespace or name is malformed")
	}

	if err := s.claimReads.Of(node).Wait(ctx); err != nil {
		return nil, fmt.Errorf("%w: node %q reads too many ResourceClaims: %w", errNotRead, node, err)
	}
	claim, results, err := s.Cluster.AllocatedClaim(ctx, key, types.UID(request.GetUid()))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotRead, err)
	}

	if len(results) == 0 || slices.ContainsFunc(results, func(result resourcev1.DeviceRequestAllocationResult) bool { return !s.sees(node, result) }) {
		return nil, fmt.Errorf("%w: %q with uid %q does not exist, has no devices, or has one that node %q does not see",
			errClaimNotFound, key, request.GetUid(), node)
	}
	response := &instancev1.GetResourceClaimResponse{PodClaimName: claim.Annotations[resourcev1.PodResourceClaimAnnotation]}
	for _, result := range results {
		response.Devices = append(response.Devices, &instancev1.AllocatedDevice{
			Request: result.Request, Pool: result.Pool, Device: result.Device,
			AdminAccess: result.AdminAccess != nil && *result.AdminAccess, ShareId: (*string)(result.ShareID),
		})
	}
	return response, nil
}

// sees reports whether the Instance of the device lists the node.
func (s *Server) sees(node string, device resourcev1.DeviceRequestAllocationResult) bool {
	namespace, name := akriv0.InstanceOfDevice(device.Pool, device.Device)
	instance := s.Cluster.Cached(types.NamespacedName{Namespace: namespace, Name: name})
	return instance != nil && slices.Contains(instance.Spec.Nodes, node)
}
