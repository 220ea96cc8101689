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
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// fakeOperator is a discovery-operator that says what the test says.
type fakeOperator struct {
	discoveryv1.UnimplementedDeviceInventoryServiceServer
	inventory broadcast.Value[*discoveryv1.WatchDevicesResponse]
}

func (o *fakeOperator) set(configurations ...*discoveryv1.ConfigurationDevices) {
	o.inventory.Set(&discoveryv1.WatchDevicesResponse{Configurations: configurations})
}

func (o *fakeOperator) WatchDevices(_ *discoveryv1.WatchDevicesRequest, stream grpc.ServerStreamingServer[discoveryv1.WatchDevicesResponse]) error {
	for {
		inventory, changed := o.inventory.Get()
		if inventory != nil {
			if err := stream.Send(inventory); err != nil {
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

// fakeWriter is an instance-writer in memory, for Instances that all list the node. It applies the rules of its API.
type fakeWriter struct {
	instancev1.UnimplementedInstanceServiceServer
	mu        sync.Mutex
	revision  uint64
	instances map[string]*instancev1.Instance
	writes    int
	refusals  int
	fail      []error  // what the next reservations answer
	deaf      bool     // whether watches hear nothing
	fenced    bool     // whether late releases heed the revision
	late      []func() // releases that were not answered and may still be carried out; nil: answer
	lost      []func() // the same of reservations

	changed broadcast.Value[int]
}

func newWriter() *fakeWriter { return &fakeWriter{instances: map[string]*instancev1.Instance{}} }

// put makes an Instance of which each slot is held as the text says, as in deviceUsage.
func (w *fakeWriter) put(name, configuration string, capacity uint32, usage ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	instance := &instancev1.Instance{Namespace: "default", Name: name, Configuration: configuration, Capacity: capacity}
	for index := range max(int(capacity), len(usage)) {
		text := ""
		if index < len(usage) {
			text = usage[index]
		}
		if text != "" || index < int(capacity) {
			instance.Slots = append(instance.Slots, slotOf(uint32(index), text))
		}
	}
	w.store(instance)
}

func slotOf(index uint32, text string) *instancev1.Slot {
	holder, err := akriv0.ParseSlotHolder(text)
	switch {
	case err != nil:
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Malformed{Malformed: text}}
	case holder.Free():
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Free{Free: &instancev1.Free{}}}
	case holder.Configuration:
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Holder{Holder: &instancev1.Holder{Node: holder.Node, VirtualId: &holder.VirtualID}}}
	default:
		return &instancev1.Slot{Index: index, State: &instancev1.Slot_Holder{Holder: &instancev1.Holder{Node: holder.Node}}}
	}
}

// usage is the Instance's deviceUsage.
func (w *fakeWriter) usage(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var usage []string
	for _, slot := range w.instances[name].GetSlots() {
		usage = append(usage, textOf(slot))
	}
	return usage
}

func textOf(slot *instancev1.Slot) string {
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

// store is called with the lock held.
func (w *fakeWriter) store(instance *instancev1.Instance) {
	w.revision++
	w.writes++
	instance.Revision = w.revision
	w.instances[instance.GetName()] = instance
	if !w.deaf {
		w.changed.Set(0)
	}
}

func (w *fakeWriter) setDeaf(deaf bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deaf = deaf; !deaf {
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
	w.fail = errs
}

func (w *fakeWriter) WatchInstances(_ *instancev1.WatchInstancesRequest, stream grpc.ServerStreamingServer[instancev1.WatchInstancesResponse]) error {
	sent := map[string]uint64{}
	for first := true; ; first = false {
		_, changed := w.changed.Get()
		for _, message := range w.news(sent, first) {
			if err := stream.Send(message); err != nil {
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

// news are the messages that bring a receiver from what it was sent to the present.
func (w *fakeWriter) news(sent map[string]uint64, first bool) []*instancev1.WatchInstancesResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	var news []*instancev1.WatchInstancesResponse
	var all []*instancev1.Instance
	for name, instance := range w.instances {
		if sent[name] != instance.GetRevision() {
			sent[name] = instance.GetRevision()
			all = append(all, instance)
			news = append(news, &instancev1.WatchInstancesResponse{Event: &instancev1.WatchInstancesResponse_Updated{Updated: instance}})
		}
	}
	if first {
		return []*instancev1.WatchInstancesResponse{{Event: &instancev1.WatchInstancesResponse_Snapshot{Snapshot: &instancev1.InstanceSnapshot{Instances: all, Revision: w.revision}}}}
	}
	for name := range sent {
		if w.instances[name] == nil {
			delete(sent, name)
			key := &instancev1.InstanceKey{Namespace: "default", Name: name, Revision: w.revision}
			news = append(news, &instancev1.WatchInstancesResponse{Event: &instancev1.WatchInstancesResponse_Removed{Removed: key}})
		}
	}
	return news
}

func (w *fakeWriter) ReserveSlots(ctx context.Context, request *instancev1.ReserveSlotsRequest) (*instancev1.ReserveSlotsResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost != nil {
		w.lost = append(w.lost, w.later(request))
		w.mu.Unlock()
		<-ctx.Done()
		w.mu.Lock()
		return nil, ctx.Err()
	}
	if len(w.fail) > 0 {
		err := w.fail[0]
		w.fail = w.fail[1:]
		return nil, err
	}
	changed := map[string]*instancev1.Instance{}
	for _, claim := range request.GetClaims() {
		instance := changed[claim.GetInstance()]
		if instance == nil {
			if w.instances[claim.GetInstance()] == nil {
				return nil, status.Errorf(codes.NotFound, "there is no Instance %q", claim.GetInstance())
			}
			instance = proto.CloneOf(w.instances[claim.GetInstance()])
			changed[claim.GetInstance()] = instance
		}
		if err := take(instance, claim, request.GetNode()); err != nil {
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

// loseReservations makes reservations hang until their caller gives up.
func (w *fakeWriter) loseReservations() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = []func(){}
}

// lostReservations returns those that hung; from now on they are answered.
func (w *fakeWriter) lostReservations() []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	lost := w.lost
	w.lost = nil
	return lost
}

// hanging is how many reservations hang.
func (w *fakeWriter) hanging() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.lost)
}

// later is the reservation as it comes to the API server late: what was written meanwhile it does not overwrite. It is
// called with the lock held.
func (w *fakeWriter) later(request *instancev1.ReserveSlotsRequest) func() {
	before := map[string]uint64{}
	for name, instance := range w.instances {
		before[name] = instance.GetRevision()
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, claim := range request.GetClaims() {
			instance := proto.CloneOf(w.instances[claim.GetInstance()])
			if instance.GetRevision() == before[claim.GetInstance()] && take(instance, claim, request.GetNode()) == nil {
				w.store(instance)
			}
		}
	}
}

func take(instance *instancev1.Instance, claim *instancev1.SlotClaim, node string) error {
	if claim.GetIndex() >= instance.GetCapacity() {
		return status.Errorf(codes.OutOfRange, "Instance %q has %d slots", instance.GetName(), instance.GetCapacity())
	}
	want := holderOf(claim, node)
	for _, slot := range instance.GetSlots() {
		if slot.GetIndex() != claim.GetIndex() {
			continue
		}
		if slot.GetFree() == nil && !proto.Equal(slot.GetHolder(), want) {
			return status.Errorf(codes.FailedPrecondition, "slot %s-%d is held by %q", instance.GetName(), claim.GetIndex(), textOf(slot))
		}
		slot.State = &instancev1.Slot_Holder{Holder: want}
	}
	return nil
}

func holderOf(claim *instancev1.SlotClaim, node string) *instancev1.Holder {
	return &instancev1.Holder{Node: node, VirtualId: claim.VirtualId}
}

// leaveUnanswered makes releases hang until their caller gives up.
func (w *fakeWriter) leaveUnanswered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = []func(){}
}

// unanswered returns the releases that hung. Each is carried out when it is called, if the Instance has not been written
// since (`fenced`) or in any case. From now on releases are answered.
func (w *fakeWriter) unanswered() []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := w.late
	w.late = nil
	return late
}

func (w *fakeWriter) hang(ctx context.Context, request *instancev1.ReleaseSlotsRequest) error {
	w.mu.Lock()
	if w.late == nil {
		w.mu.Unlock()
		return nil
	}
	before := map[string]uint64{}
	for name, instance := range w.instances {
		before[name] = instance.GetRevision()
	}
	w.late = append(w.late, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, claim := range request.GetClaims() {
			if !w.fenced || before[claim.GetInstance()] == w.instances[claim.GetInstance()].GetRevision() {
				w.free(claim, request.GetNode())
			}
		}
	})
	w.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

func (w *fakeWriter) ReleaseSlots(ctx context.Context, request *instancev1.ReleaseSlotsRequest) (*instancev1.ReleaseSlotsResponse, error) {
	if err := w.hang(ctx, request); err != nil {
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

// free is called with the lock held.
func (w *fakeWriter) free(claim *instancev1.SlotClaim, node string) {
	instance := proto.CloneOf(w.instances[claim.GetInstance()])
	for _, slot := range instance.GetSlots() {
		if slot.GetIndex() == claim.GetIndex() && proto.Equal(slot.GetHolder(), holderOf(claim, node)) {
			slot.State = &instancev1.Slot_Free{Free: &instancev1.Free{}}
			w.store(instance)
		}
	}
}
