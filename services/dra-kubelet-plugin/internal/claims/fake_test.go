package claims_test

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/node"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// fakeWriter is an instance-writer in memory. Its changes are in the store of the node at once.
type fakeWriter struct {
	instancev1.InstanceServiceClient
	store *node.Store

	mu       sync.Mutex
	revision uint64
	usage    map[string][]string // deviceUsage by Instance
	errs     []error             // of the next calls
	calls    int
	onCall   func() // called in each call, if set
}

// put sets the slots of an Instance of the Configuration c.
func (w *fakeWriter) put(instance string, usage ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.usage[instance] = usage
	w.publish()
}

// remove removes an Instance.
func (w *fakeWriter) remove(instance string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.usage, instance)
	w.publish()
}

func (w *fakeWriter) publish() {
	w.revision++
	var all []*instancev1.Instance
	for name := range w.usage {
		all = append(all, w.instance(name))
	}
	w.store.SetInstances(all, w.revision)
}

func (w *fakeWriter) instance(name string) *instancev1.Instance {
	instance := &instancev1.Instance{
		Namespace: "default", Name: name, Configuration: "c", Capacity: uint32(len(w.usage[name])), Revision: w.revision, DeviceId: name,
	}
	for i, value := range w.usage[name] {
		holder, err := akriv0.ParseSlotHolder(value)
		slot := &instancev1.Slot{Index: uint32(i)}
		switch {
		case err != nil:
			slot.State = &instancev1.Slot_Malformed{Malformed: value}
		case holder.Free():
			slot.State = &instancev1.Slot_Free{Free: &instancev1.Free{}}
		case holder.Claim != "":
			slot.State = &instancev1.Slot_Claim{Claim: &instancev1.ClaimHolder{Node: holder.Node, Uid: holder.Claim}}
		default:
			slot.State = &instancev1.Slot_Holder{Holder: &instancev1.Holder{Node: holder.Node}}
		}
		instance.Slots = append(instance.Slots, slot)
	}
	return instance
}

// ReserveSlots implements the API of instance-writer.
func (w *fakeWriter) ReserveSlots(
	_ context.Context, request *instancev1.ReserveSlotsRequest, _ ...grpc.CallOption,
) (*instancev1.ReserveSlotsResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.next(); err != nil {
		return nil, err
	}
	for _, claim := range request.GetClaims() {
		if value := w.usage[claim.GetInstance()][claim.GetIndex()]; value != "" && value != holderOf(request.GetNode(), claim) {
			return nil, status.Errorf(codes.FailedPrecondition, "slot %d is held by %q", claim.GetIndex(), value)
		}
	}
	for _, claim := range request.GetClaims() {
		w.usage[claim.GetInstance()][claim.GetIndex()] = holderOf(request.GetNode(), claim)
	}
	w.publish()
	return &instancev1.ReserveSlotsResponse{}, nil
}

// ReleaseSlots implements the API of instance-writer.
func (w *fakeWriter) ReleaseSlots(
	_ context.Context, request *instancev1.ReleaseSlotsRequest, _ ...grpc.CallOption,
) (*instancev1.ReleaseSlotsResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.next(); err != nil {
		return nil, err
	}
	for _, claim := range request.GetClaims() {
		if slots := w.usage[claim.GetInstance()]; slots != nil && slots[claim.GetIndex()] == holderOf(request.GetNode(), claim) {
			slots[claim.GetIndex()] = ""
		}
	}
	w.publish()
	return &instancev1.ReleaseSlotsResponse{}, nil
}

func (w *fakeWriter) next() (err error) {
	w.calls++
	if w.onCall != nil {
		w.onCall()
	}
	if len(w.errs) > 0 {
		err, w.errs = w.errs[0], w.errs[1:]
	}
	return err
}

func holderOf(node string, claim *instancev1.SlotClaim) string {
	return fmt.Sprintf("D:%s:%s", claim.GetClaimUid(), node)
}

func (w *fakeWriter) fail(errs ...error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = errs
}

func (w *fakeWriter) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

func (w *fakeWriter) used(instance string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.usage[instance]...)
}
