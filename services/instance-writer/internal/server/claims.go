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

	"akri.sh/services/instance-writer/internal/editor"
	"akri.sh/services/instance-writer/internal/slots"
)

// fenceAnnotation is the version of the Instance that the last reservation was made in. It is new
// each time.
const fenceAnnotation = "akri.sh/reserved-at-version"

var errWrittenSince = errors.New("the Instance was written since")

// claim is one slot that a holder asks for or gives back.
type claim struct {
	index  int
	holder akriv0.SlotHolder
}

// group are the claims on one Instance.
type group struct {
	key    types.NamespacedName
	claims []claim
}

// held is a group as it stood at a version of the Instance.
type held struct {
	group
	version string
}

// ReserveSlots takes the Instances one after the other in the order of their names, so that of two
// calls that want the same ones, one gets all. Those of one Instance are one write.
func (s *Server) ReserveSlots(ctx context.Context, request *instancev1.ReserveSlotsRequest) (*instancev1.ReserveSlotsResponse, error) {
	instances, err := s.reserve(ctx, request)
	s.Reservations.WithLabelValues(reasonOf(err)).Inc()
	if err != nil {
		return nil, toStatus(err)
	}
	return &instancev1.ReserveSlotsResponse{Instances: instances}, nil
}

func (s *Server) reserve(ctx context.Context, request *instancev1.ReserveSlotsRequest) ([]*instancev1.Instance, error) {
	groups, err := grouped(request.GetNode(), request.GetClaims())
	if err != nil {
		return nil, err
	}
	if err := s.foresee(ctx, groups); err != nil {
		return nil, err
	}
	var taken []held
	instances := make([]*instancev1.Instance, 0, len(groups))
	for _, group := range groups {
		instance, own, err := s.take(ctx, group)
		if err != nil {
			s.undo(ctx, taken)
			return nil, err
		}
		taken = append(taken, held{own, instance.ResourceVersion})
		instances = append(instances, toProto(instance))
	}
	return instances, nil
}

// foresee looks before a call on several Instances whether all will be granted, so that normally
// nothing is to be undone.
func (s *Server) foresee(ctx context.Context, groups []group) error {
	if len(groups) < 2 {
		return nil
	}
	for _, group := range groups {
		if _, err := group.reserve(s.Cluster.Cached(group.key).DeepCopy(), nil); err == nil {
			continue
		}
		current, err := s.Cluster.Get(ctx, group.key)
		if err != nil {
			return err
		}
		if _, err := group.reserve(current, nil); err != nil {
			return err
		}
	}
	return nil
}

// take reserves on one Instance, and tells which of the slots were free before.
func (s *Server) take(ctx context.Context, wanted group) (*akriv0.Instance, group, error) {
	own := group{key: wanted.key}
	instance, err := s.Editor.Edit(ctx, wanted.key, editor.Edit{Exact: true, Apply: func(current *akriv0.Instance) (*akriv0.Instance, error) {
		own.claims = nil
		return wanted.reserve(current, &own.claims)
	}})
	return instance, own, err
}

// reserve applies the claims; those that were not held before are added to `taken`.
func (g group) reserve(current *akriv0.Instance, taken *[]claim) (*akriv0.Instance, error) {
	if current == nil || current.DeletionTimestamp != nil {
		return nil, fmt.Errorf("%w: %q", errNoInstance, g.key.Name)
	}
	for _, claim := range g.claims {
		if taken != nil && !holds(current, claim) {
			*taken = append(*taken, claim)
		}
		if err := slots.Reserve(current, claim.index, claim.holder); err != nil {
			return nil, fmt.Errorf("reserve: %w", err)
		}
	}
	// Also a reservation that changes nothing is written, since a release of the same slot may
	// still be on its way to the API server, from this replica or another: it then meets a
	// conflict, and finds its caller gone.
	metav1.SetMetaDataAnnotation(&current.ObjectMeta, fenceAnnotation, current.ResourceVersion)
	return current, nil
}

// fenced tells whether the Instance was written since the version, or will be together with a
// reservation.
func fenced(instance *akriv0.Instance, version string) bool {
	return instance.ResourceVersion != version || instance.Annotations[fenceAnnotation] == version
}

func holds(instance *akriv0.Instance, claim claim) bool {
	return slices.Contains(slots.List(instance), slots.Slot{Index: claim.index, Holder: claim.holder})
}

// undo gives back what a call took before it failed, unless the Instance was written since: the
// caller may have given up waiting and have what it asked for by another call. What is not given
// back is unused, and therefore released later by the node itself.
func (s *Server) undo(ctx context.Context, taken []held) {
	for _, one := range taken {
		_, err := s.Editor.Edit(context.WithoutCancel(ctx), one.key, editor.Edit{Exact: true, Apply: func(current *akriv0.Instance) (*akriv0.Instance, error) {
			if current == nil || fenced(current, one.version) {
				return nil, errWrittenSince
			}
			return one.release(current), nil
		}})
		if err != nil {
			s.Log.Warn("slots stay reserved until their node releases them", zap.String("instance", one.key.Name), zap.Error(err))
		}
	}
}

// ReleaseSlots gives slots back.
func (s *Server) ReleaseSlots(ctx context.Context, request *instancev1.ReleaseSlotsRequest) (*instancev1.ReleaseSlotsResponse, error) {
	groups, err := grouped(request.GetNode(), request.GetClaims())
	if err != nil {
		return nil, toStatus(err)
	}
	response := &instancev1.ReleaseSlotsResponse{}
	var failed error
	for _, group := range groups {
		instance, err := s.release(ctx, group)
		switch {
		case errors.Is(err, errNoInstance):
		case err != nil && failed == nil:
			failed = err // and the others: one that cannot be written must not keep theirs from other nodes
		case err == nil:
			response.Instances = append(response.Instances, toProto(instance))
		}
	}
	if failed != nil {
		return nil, toStatus(failed)
	}
	return response, nil
}

func (s *Server) release(ctx context.Context, group group) (*akriv0.Instance, error) {
	return s.Editor.Edit(ctx, group.key, editor.Edit{Exact: true, Apply: func(current *akriv0.Instance) (*akriv0.Instance, error) {
		if current == nil {
			return nil, errNoInstance
		}
		return group.release(current), nil
	}})
}

func (g group) release(current *akriv0.Instance) *akriv0.Instance {
	for _, claim := range g.claims {
		slots.Release(current, claim.index, claim.holder)
	}
	return current
}

// grouped sorts the claims of a call by Instance.
func grouped(node string, claims []*instancev1.SlotClaim) ([]group, error) {
	if node == "" || len(claims) == 0 {
		return nil, invalidError("a node and at least one claim must be given")
	}
	byKey := map[types.NamespacedName][]claim{}
	for _, c := range claims {
		if c.GetNamespace() == "" || c.GetInstance() == "" {
			return nil, invalidError("each claim must name the namespace and the Instance")
		}
		key := types.NamespacedName{Namespace: c.GetNamespace(), Name: c.GetInstance()}
		holder := akriv0.SlotHolder{Node: node, VirtualID: c.GetVirtualId(), Configuration: c.VirtualId != nil}
		if read, err := akriv0.ParseSlotHolder(holder.String()); err != nil || read != holder {
			return nil, invalidError(fmt.Sprintf("a slot cannot be held by node %q with virtual id %q", node, c.GetVirtualId()))
		}
		byKey[key] = append(byKey[key], claim{int(c.GetIndex()), holder})
	}
	groups := make([]group, 0, len(byKey))
	for key, claims := range byKey {
		groups = append(groups, group{key, claims})
	}
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.key.String(), b.key.String()) })
	return groups, nil
}
