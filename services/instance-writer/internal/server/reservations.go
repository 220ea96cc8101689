package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/batch"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/slots"
)

// fenceAnnotation holds the resourceVersion of the Instance before the latest reservation. Each
// reservation changes it.
const fenceAnnotation = "akri.sh/reserved-at-version"

// maxHolderID is the maximum length of virtual ids and uids of claims in bytes. All nodes that
// share the device receive them.
const maxHolderID = 253

var errWrittenSince = errors.New("another write has changed the Instance")

// claim is one slot that a holder reserves or releases.
type claim struct {
	index  int
	holder akriv0.SlotHolder
}

// instanceClaims are the claims of a call on one Instance.
type instanceClaims struct {
	key    types.NamespacedName
	claims []claim
}

// reservation is what a call has reserved of one Instance, and the resourceVersion of that write.
type reservation struct {
	instanceClaims
	version string
}

// ReserveSlots reserves the slots of one Instance after the other, ordered by name, so that one of
// two calls for the same Instances gets all of them. The slots of one Instance take one write.
func (s *Server) ReserveSlots(ctx context.Context, request *instancev1.ReserveSlotsRequest) (*instancev1.ReserveSlotsResponse, error) {
	instances, err := s.reserve(ctx, request)
	s.Reservations.WithLabelValues(reasonOf(err)).Inc()
	if err != nil {
		return nil, toStatus(err)
	}
	return &instancev1.ReserveSlotsResponse{Instances: instances}, nil
}

func (s *Server) reserve(ctx context.Context, request *instancev1.ReserveSlotsRequest) ([]*instancev1.Instance, error) {
	byInstance, err := groupByInstance(request.GetNode(), request.GetClaims())
	if err != nil {
		return nil, err
	}
	if err := s.precheck(ctx, byInstance); err != nil {
		return nil, err
	}
	var reserved []reservation
	instances := make([]*instancev1.Instance, 0, len(byInstance))
	for _, requested := range byInstance {
		instance, added, err := batch.EditWithValue(ctx, s.Writer, requested.key, true, s.reserveOn(requested))
		if err == nil && instance == nil {
			err = requested.errNotFound()
		}
		if err != nil {
			s.rollBack(ctx, reserved)
			return nil, err
		}
		reserved = append(reserved, reservation{instanceClaims{requested.key, added}, instance.ResourceVersion})
		instances = append(instances, toProto(instance))
	}
	return instances, nil
}

// precheck checks a call on several Instances before the first write, so that a rollback is rare.
func (s *Server) precheck(ctx context.Context, byInstance []instanceClaims) error {
	if len(byInstance) < 2 {
		return nil
	}
	for _, requested := range byInstance {
		reserve := s.reserveOn(requested)
		if _, _, err := reserve(s.Cluster.Cached(requested.key).DeepCopy()); err == nil {
			continue
		}
		current, err := s.Cluster.Get(ctx, requested.key)
		if err != nil {
			return err
		}
		if _, _, err := reserve(current); err != nil {
			return err
		}
	}
	return nil
}

// reserveOn returns a function that applies the claims to an Instance. It refuses a node that the
// Configuration no longer allows, also while the Instance still lists it.
func (s *Server) reserveOn(requested instanceClaims) func(*akriv0.Instance) (*akriv0.Instance, []claim, error) {
	return func(current *akriv0.Instance) (*akriv0.Instance, []claim, error) {
		if current != nil && !s.Cluster.AllowsIn(cluster.Owner(current), requested.claims[0].holder.Node) {
			return nil, nil, requested.errNotFound()
		}
		return requested.reserve(current)
	}
}

// errNotFound is the error for an Instance that does not exist, also because it was deleted in the
// same write as the claims, and for one that does not list the node: a node learns nothing about
// the devices of others.
func (c instanceClaims) errNotFound() error {
	return fmt.Errorf("%w: %q does not exist or does not list node %q", errInstanceNotFound, c.key.Name, c.claims[0].holder.Node)
}

// visible returns whether the node of the claims may see the Instance: it lists the node, or one of
// its slots has the holder of a claim.
func (c instanceClaims) visible(instance *akriv0.Instance) bool {
	return instance != nil && (slices.Contains(instance.Spec.Nodes, c.claims[0].holder.Node) ||
		slices.ContainsFunc(c.claims, func(claim claim) bool { return holds(instance, claim) }))
}

// reserve applies the claims and returns those whose slots were free before.
func (c instanceClaims) reserve(current *akriv0.Instance) (desired *akriv0.Instance, added []claim, err error) {
	if current == nil || current.DeletionTimestamp != nil {
		return nil, nil, c.errNotFound()
	}
	for _, claim := range c.claims {
		if !holds(current, claim) {
			added = append(added, claim)
		}
		err := slots.Reserve(current, claim.index, claim.holder)
		var refusal *slots.Refusal
		switch {
		case errors.As(err, &refusal) && refusal.Reason == slots.NodeNotListed:
			return nil, nil, c.errNotFound()
		case err != nil:
			return nil, nil, fmt.Errorf("reserve: %w", err)
		}
	}
	// The annotation makes the API server write even if no slot changes. An earlier release of the
	// same slot, which may still be on its way to the API server, then fails with a conflict.
	metav1.SetMetaDataAnnotation(&current.ObjectMeta, fenceAnnotation, current.ResourceVersion)
	return current, added, nil
}

func holds(instance *akriv0.Instance, claim claim) bool {
	return slices.Contains(slots.List(instance), slots.Slot{Index: claim.index, Holder: claim.holder})
}

// rollBack releases what a call reserved before it failed, except on Instances that have been
// written since: the caller may have repeated the call on another replica. The node releases
// remaining slots later, because no Pod uses them.
func (s *Server) rollBack(ctx context.Context, reserved []reservation) {
	for _, reservation := range reserved {
		_, err := s.Writer.Edit(context.WithoutCancel(ctx), reservation.key, batch.Edit{Exact: true, Apply: reservation.rollBack})
		if err != nil {
			s.Log.Warn("releasing slots of a failed reservation failed; their node releases them later",
				zap.String("instance", reservation.key.Name), zap.Error(err))
		}
	}
}

// rollBack refuses an Instance that was written after the reservation, or will be by another
// reservation of the same batch.
func (r reservation) rollBack(current *akriv0.Instance) (*akriv0.Instance, error) {
	if current == nil || current.ResourceVersion != r.version || current.Annotations[fenceAnnotation] == r.version {
		return nil, errWrittenSince
	}
	return r.release(current), nil
}

// ReleaseSlots releases slots. An Instance that cannot be written does not prevent the release of
// slots of other Instances.
func (s *Server) ReleaseSlots(ctx context.Context, request *instancev1.ReleaseSlotsRequest) (*instancev1.ReleaseSlotsResponse, error) {
	byInstance, err := groupByInstance(request.GetNode(), request.GetClaims())
	if err != nil {
		return nil, toStatus(err)
	}
	response := &instancev1.ReleaseSlotsResponse{}
	var firstErr error
	for _, requested := range byInstance {
		instance, err := s.releaseOn(ctx, requested)
		switch {
		case errors.Is(err, errInstanceNotFound):
		case err != nil:
			firstErr = cmp.Or(firstErr, err)
		default:
			response.Instances = append(response.Instances, toProto(instance))
		}
	}
	if firstErr != nil {
		return nil, toStatus(firstErr)
	}
	return response, nil
}

func (s *Server) releaseOn(ctx context.Context, requested instanceClaims) (*akriv0.Instance, error) {
	apply := func(current *akriv0.Instance) (*akriv0.Instance, error) {
		if !requested.visible(current) {
			return nil, requested.errNotFound()
		}
		return requested.release(current), nil
	}
	instance, err := s.Writer.Edit(ctx, requested.key, batch.Edit{Exact: true, Apply: apply})
	if err == nil && instance == nil {
		err = requested.errNotFound()
	}
	return instance, err
}

func (c instanceClaims) release(current *akriv0.Instance) *akriv0.Instance {
	for _, claim := range c.claims {
		slots.Release(current, claim.index, claim.holder)
	}
	return current
}

// groupByInstance validates the claims of a call and groups them by Instance, ordered by name.
func groupByInstance(node string, claims []*instancev1.SlotClaim) ([]instanceClaims, error) {
	if node == "" || len(claims) == 0 {
		return nil, invalidRequestError("node and claims must not be empty")
	}
	byKey := map[types.NamespacedName][]claim{}
	for _, c := range claims {
		if c.GetNamespace() == "" || c.GetInstance() == "" {
			return nil, invalidRequestError("namespace and instance of a claim must not be empty")
		}
		key := types.NamespacedName{Namespace: c.GetNamespace(), Name: c.GetInstance()}
		holder := akriv0.SlotHolder{Node: node, VirtualID: c.GetVirtualId(), Configuration: c.VirtualId != nil, Claim: c.GetClaimUid()}
		parsed, err := akriv0.ParseSlotHolder(holder.String())
		if err != nil || parsed != holder || (c.ClaimUid != nil && c.GetClaimUid() == "") {
			return nil, invalidRequestError(fmt.Sprintf(
				"holder %q is malformed: node, virtual id and claim uid may not be empty or contain ':', and only one id may be set", holder))
		}
		if id := holder.VirtualID + holder.Claim; len(id) > maxHolderID || !akriv0.IsText(id) {
			return nil, invalidRequestError(fmt.Sprintf(
				"virtual id or claim uid %.40q: must be at most %d bytes without control characters", id, maxHolderID))
		}
		byKey[key] = append(byKey[key], claim{int(c.GetIndex()), holder})
	}
	byInstance := make([]instanceClaims, 0, len(byKey))
	for key, claims := range byKey {
		byInstance = append(byInstance, instanceClaims{key, claims})
	}
	slices.SortFunc(byInstance, func(a, b instanceClaims) int { return cmp.Compare(a.key.String(), b.key.String()) })
	return byInstance, nil
}
