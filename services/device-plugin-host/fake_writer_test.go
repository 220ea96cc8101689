package devicepluginhost_test

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// fakeWriter is an in-memory instance-writer whose Instances all list the node. It implements the
// rules of the API.
type fakeWriter struct {
	instancev1.UnimplementedInstanceServiceServer
	mu        sync.Mutex
	revision  uint64
	instances map[string]*instancev1.Instance
	writes    int
	refusals  int
	errs      []error // returned by the next reservations
	paused    bool    // watches get no changes
	// checksRevision makes late releases fail if the Instance was written since.
	checksRevision bool
	// Calls that hang until their context ends. Each function carries one out late. nil: calls are
	// answered.
	hangingReleases, hangingReservations []func()
	releaseTimeouts                      int // hanging releases whose context has ended

	changed broadcast.Value[int]
}

func newFakeWriter() *fakeWriter { return &fakeWriter{instances: map[string]*instancev1.Instance{}} }

// put creates or replaces an Instance whose slots have the given values of deviceUsage. Its device
// id is unknown.
func (w *fakeWriter) put(name, configuration string, capacity uint32, usage ...string) {
	w.putDevice("", name, configuration, capacity, usage...)
}

// putDevice is put for an Instance whose device id is known.
func (w *fakeWriter) putDevice(id, name, configuration string, capacity uint32, usage ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	instance := &instancev1.Instance{Namespace: "default", Name: name, Configuration: configuration, Capacity: capacity, DeviceId: id}
	for index := range max(int(capacity), len(usage)) {
		value := ""
		if index < len(usage) {
			value = usage[index]
		}
		if value != "" || index < int(capacity) {
			instance.Slots = append(instance.Slots, slotOf(uint32(index), value))
		}
	}
	w.store(instance)
}

func slotOf(index uint32, value string) *instancev1.Slot {
	holder, err := akriv0.ParseSlotHolder(value)
	switch {
	case err != nil:
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Malformed{Malformed: value}}
	case holder.Free():
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Free{Free: &instancev1.Free{}}}
	case holder.Configuration:
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Holder{Holder: &instancev1.Holder{Node: holder.Node, VirtualId: &holder.VirtualID}}}
	default:
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Holder{Holder: &instancev1.Holder{Node: holder.Node}}}
	}
}

// usage returns deviceUsage of the Instance.
func (w *fakeWriter) usage(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var usage []string
	for _, slot := range w.instances[name].GetSlots() {
		usage = append(usage, valueOf(slot))
	}
	return usage
}

func valueOf(slot *instancev1.Slot) string {
	holder := slot.GetHolder()
	return akriv0.SlotHolder{Node: holder.GetNode(), VirtualID: holder.GetVirtualId(), Configuration: holder != nil && holder.VirtualId != nil}.String()
}

func (w *fakeWriter) remove(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision++
	delete(w.instances, name)
	w.changed.Set(0)
}

// store is called with mu held.
func (w *fakeWriter) store(instance *instancev1.Instance) {
	w.revision++
	w.writes++
	instance.Revision = w.revision
	w.instances[instance.GetName()] = instance
	if !w.paused {
		w.changed.Set(0)
	}
}

func (w *fakeWriter) setPaused(paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused = paused; !paused {
		w.changed.Set(0)
	}
}

func (w *fakeWriter) refused() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refusals
}

func (w *fakeWriter) failNext(errs ...error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = errs
}

func (w *fakeWriter) WatchInstances(request *instancev1.WatchInstancesRequest, stream grpc.ServerStreamingServer[instancev1.WatchInstancesResponse]) error {
	sent := map[string]uint64{}
	for first := true; ; first = false {
		_, changed := w.changed.Get()
		for _, event := range w.events(sent, first, request.GetParts()) {
			if err := stream.Send(event); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// events returns the events since the sent revisions. Each part of a snapshot has one Instance.
func (w *fakeWriter) events(sent map[string]uint64, first, inParts bool) []*instancev1.WatchInstancesResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	var events []*instancev1.WatchInstancesResponse
	var all []*instancev1.Instance
	for name, instance := range w.instances {
		if sent[name] != instance.GetRevision() {
			sent[name] = instance.GetRevision()
			all = append(all, instance)
			events = append(events, &instancev1.WatchInstancesResponse{Event: &instancev1.WatchInstancesResponse_Updated{Updated: instance}})
		}
	}
	if first {
		parts := []*instancev1.InstanceSnapshot{{Instances: all, Revision: w.revision}}
		for inParts && len(parts[len(parts)-1].GetInstances()) > 1 {
			part := parts[len(parts)-1]
			parts = append(parts, &instancev1.InstanceSnapshot{Instances: part.GetInstances()[1:], Revision: w.revision})
			part.Instances, part.More = part.GetInstances()[:1], true
		}
		events = nil
		for _, part := range parts {
			events = append(events, &instancev1.WatchInstancesResponse{Event: &instancev1.WatchInstancesResponse_Snapshot{Snapshot: part}})
		}
		return events
	}
	for name := range sent {
		if w.instances[name] == nil {
			delete(sent, name)
			key := &instancev1.InstanceKey{Namespace: "default", Name: name, Revision: w.revision}
			events = append(events, &instancev1.WatchInstancesResponse{Event: &instancev1.WatchInstancesResponse_Removed{Removed: key}})
		}
	}
	return events
}

func (w *fakeWriter) ReserveSlots(ctx context.Context, request *instancev1.ReserveSlotsRequest) (*instancev1.ReserveSlotsResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hangingReservations != nil {
		w.hangingReservations = append(w.hangingReservations, w.lateReservation(request))
		w.mu.Unlock()
		<-ctx.Done()
		w.mu.Lock()
		return nil, ctx.Err()
	}
	if len(w.errs) > 0 {
		err := w.errs[0]
		w.errs = w.errs[1:]
		return nil, err
	}
	changed := map[string]*instancev1.Instance{}
	for _, claim := range request.GetClaims() {
		instance := changed[claim.GetInstance()]
		if instance == nil {
			if w.instances[claim.GetInstance()] == nil {
				return nil, status.Errorf(codes.NotFound, "Instance %q does not exist", claim.GetInstance())
			}
			instance = proto.CloneOf(w.instances[claim.GetInstance()])
			changed[claim.GetInstance()] = instance
		}
		if err := reserve(instance, claim, request.GetNode()); err != nil {
			w.refusals++
			return nil, err
		}
	}
	response := &instancev1.ReserveSlotsResponse{}
	for name, instance := range changed {
		if !proto.Equal(instance, w.instances[name]) {
			w.store(instance)
		}
		response.Instances = append(response.Instances, w.instances[name])
	}
	return response, nil
}

// hangReservations makes reservations hang until their context ends.
func (w *fakeWriter) hangReservations() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangingReservations = []func(){}
}

// answerReservations answers reservations again. It returns those that hang.
func (w *fakeWriter) answerReservations() []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := w.hangingReservations
	w.hangingReservations = nil
	return late
}

// hanging returns the numbers of hanging releases and reservations.
func (w *fakeWriter) hanging() (releases, reservations int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.hangingReleases), len(w.hangingReservations)
}

// lateReservation returns a reservation that reaches the API server late: it fails if the Instance
// was written since. It is called with mu held.
func (w *fakeWriter) lateReservation(request *instancev1.ReserveSlotsRequest) func() {
	before := map[string]uint64{}
	for name, instance := range w.instances {
		before[name] = instance.GetRevision()
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, claim := range request.GetClaims() {
			instance := proto.CloneOf(w.instances[claim.GetInstance()])
			if instance.GetRevision() == before[claim.GetInstance()] && reserve(instance, claim, request.GetNode()) == nil {
				w.store(instance)
			}
		}
	}
}

func reserve(instance *instancev1.Instance, claim *instancev1.SlotClaim, node string) error {
	if claim.GetIndex() >= instance.GetCapacity() {
		return status.Errorf(codes.OutOfRange, "Instance %q has %d slots", instance.GetName(), instance.GetCapacity())
	}
	holder := holderOf(claim, node)
	for _, slot := range instance.GetSlots() {
		if slot.GetIndex() != claim.GetIndex() {
			continue
		}
		if slot.GetFree() == nil && !proto.Equal(slot.GetHolder(), holder) {
			return status.Errorf(codes.FailedPrecondition, "slot %s-%d is held by %q", instance.GetName(), claim.GetIndex(), valueOf(slot))
		}
		slot.State = &instancev1.Slot_Holder{Holder: holder}
	}
	return nil
}

func holderOf(claim *instancev1.SlotClaim, node string) *instancev1.Holder {
	return &instancev1.Holder{Node: node, VirtualId: claim.VirtualId}
}

// hangReleases makes releases hang until their context ends.
func (w *fakeWriter) hangReleases() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangingReleases = []func(){}
}

// answerReleases answers releases again. It returns those that hang.
func (w *fakeWriter) answerReleases() []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := w.hangingReleases
	w.hangingReleases = nil
	return late
}

// timedOutReleases returns the number of hanging releases whose context has ended.
func (w *fakeWriter) timedOutReleases() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.releaseTimeouts
}

func (w *fakeWriter) hangRelease(ctx context.Context, request *instancev1.ReleaseSlotsRequest) error {
	w.mu.Lock()
	if w.hangingReleases == nil {
		w.mu.Unlock()
		return nil
	}
	before := map[string]uint64{}
	for name, instance := range w.instances {
		before[name] = instance.GetRevision()
	}
	w.hangingReleases = append(w.hangingReleases, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, claim := range request.GetClaims() {
			if !w.checksRevision || before[claim.GetInstance()] == w.instances[claim.GetInstance()].GetRevision() {
				w.free(claim, request.GetNode())
			}
		}
	})
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.releaseTimeouts++
	return ctx.Err()
}

func (w *fakeWriter) ReleaseSlots(ctx context.Context, request *instancev1.ReleaseSlotsRequest) (*instancev1.ReleaseSlotsResponse, error) {
	if err := w.hangRelease(ctx, request); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	response := &instancev1.ReleaseSlotsResponse{}
	for _, claim := range request.GetClaims() {
		if w.instances[claim.GetInstance()] == nil {
			continue
		}
		w.free(claim, request.GetNode())
		response.Instances = append(response.Instances, w.instances[claim.GetInstance()])
	}
	return response, nil
}

// free is called with mu held.
func (w *fakeWriter) free(claim *instancev1.SlotClaim, node string) {
	instance := proto.CloneOf(w.instances[claim.GetInstance()])
	for _, slot := range instance.GetSlots() {
		if slot.GetIndex() == claim.GetIndex() && proto.Equal(slot.GetHolder(), holderOf(claim, node)) {
			slot.State = &instancev1.Slot_Free{Free: &instancev1.Free{}}
			w.store(instance)
		}
	}
}
