// Package instancetest has an instance-writer in memory, for tests of the services of nodes.
package instancetest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"akri.sh/libs/broadcast"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Writer is an instance-writer whose Instances all list the node. It implements the rules of the
// API.
type Writer struct {
	instancev1.UnimplementedInstanceServiceServer

	// OnCall is called at the start of each reservation and release with its number, if set.
	OnCall func(call int)
	// OnChange is called with all Instances after each change, if set. It must not call the Writer.
	OnChange func(instances []*instancev1.Instance, revision uint64)
	// ChecksRevision makes late releases fail if the Instance was written since.
	ChecksRevision bool

	mu                     sync.Mutex
	revision               uint64
	instances              map[string]*instancev1.Instance
	calls, writes, refused int
	errs                   []error               // of the next calls
	paused                 bool                  // watches get no changes
	resources              *instancev1.Resources // nil: watches do not get it
	changed                broadcast.Value[int]
	// Calls that hang until their context ends. Each function carries one out late. nil: calls are
	// answered.
	hangingReleases, hangingReservations []func()
	releaseTimeouts                      int // hanging releases whose context has ended

	claims   map[string]allocatedClaim // by namespace and name
	reads    int                       // of claims
	readErrs []error                   // of the next reads
}

// New returns a Writer without Instances.
func New() *Writer {
	return &Writer{instances: map[string]*instancev1.Instance{}, claims: map[string]allocatedClaim{}}
}

// Put creates or replaces an Instance in the namespace default whose slots have the given values of
// deviceUsage. Its device id is unknown.
func (w *Writer) Put(name, configuration string, capacity uint32, usage ...string) {
	w.PutDevice("", name, configuration, capacity, usage...)
}

// PutDevice is Put for an Instance whose device id is known.
func (w *Writer) PutDevice(id, name, configuration string, capacity uint32, usage ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	instance := &instancev1.Instance{Namespace: "default", Name: name, Configuration: configuration, Capacity: capacity, DeviceId: id}
	for index := range max(int(capacity), len(usage)) {
		value := ""
		if index < len(usage) {
			value = usage[index]
		}
		if value != "" || index < int(capacity) {
			instance.Slots = append(instance.Slots, newSlot(uint32(index), value))
		}
	}
	w.store(instance)
}

// Remove deletes an Instance.
func (w *Writer) Remove(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision++
	delete(w.instances, name)
	w.publish()
}

// store is called with mu held.
func (w *Writer) store(instance *instancev1.Instance) {
	w.revision++
	w.writes++
	instance.Revision = w.revision
	w.instances[instance.GetName()] = instance
	w.publish()
}

func (w *Writer) publish() {
	if w.OnChange != nil {
		w.OnChange(slices.Collect(maps.Values(w.instances)), w.revision)
	}
	if !w.paused {
		w.changed.Set(0)
	}
}

// Usage returns deviceUsage of the Instance.
func (w *Writer) Usage(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var usage []string
	for _, slot := range w.instances[name].GetSlots() {
		usage = append(usage, valueOf(slot))
	}
	return usage
}

// Calls returns the number of reservations and releases.
func (w *Writer) Calls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

// Writes returns the number of writes of Instances.
func (w *Writer) Writes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// Refused returns the number of reservations that were refused by the state of the Instances.
func (w *Writer) Refused() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// FailNext makes the next reservations and releases fail.
func (w *Writer) FailNext(errs ...error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = errs
}

// SetPaused withholds changes from watches while it is true.
func (w *Writer) SetPaused(paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused = paused; !paused {
		w.changed.Set(0)
	}
}

// SetResources sets how Pods on the node get devices. Watches get it at their start and after each
// call.
func (w *Writer) SetResources(resources instancev1.Resources) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resources = &resources
	w.publish()
}

// WatchInstances implements the API of instance-writer.
func (w *Writer) WatchInstances(
	_ *instancev1.WatchInstancesRequest, stream grpc.ServerStreamingServer[instancev1.WatchInstancesResponse],
) error {
	sent := map[string]uint64{}
	var resources *instancev1.Resources // that were sent
	for first := true; ; first = false {
		_, changed := w.changed.Get()
		for _, event := range append(w.resourcesEvents(&resources), w.events(sent, first)...) {
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

// resourcesEvents returns how Pods on the node get devices, if it was not sent yet.
func (w *Writer) resourcesEvents(sent **instancev1.Resources) []*instancev1.WatchInstancesResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resources == *sent {
		return nil
	}
	*sent = w.resources
	return []*instancev1.WatchInstancesResponse{{Event: &instancev1.WatchInstancesResponse_Resources{Resources: *w.resources}}}
}

// events returns the events since the sent revisions. Each part of a snapshot has one Instance.
func (w *Writer) events(sent map[string]uint64, first bool) []*instancev1.WatchInstancesResponse {
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
		return snapshot(all, w.revision)
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

func snapshot(all []*instancev1.Instance, revision uint64) (events []*instancev1.WatchInstancesResponse) {
	parts := [][]*instancev1.Instance{all}
	if len(all) > 1 {
		parts = slices.Collect(slices.Chunk(all, 1))
	}
	for i, part := range parts {
		events = append(events, &instancev1.WatchInstancesResponse{Event: &instancev1.WatchInstancesResponse_Snapshot{
			Snapshot: &instancev1.InstanceSnapshot{Instances: part, Revision: revision, More: i < len(parts)-1},
		}})
	}
	return events
}

// ReserveSlots implements the API of instance-writer.
func (w *Writer) ReserveSlots(ctx context.Context, request *instancev1.ReserveSlotsRequest) (*instancev1.ReserveSlotsResponse, error) {
	if err := w.call(); err != nil {
		return nil, err
	}
	if err := w.hangReservation(ctx, request); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
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
			w.refused++
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

// ReleaseSlots implements the API of instance-writer.
func (w *Writer) ReleaseSlots(ctx context.Context, request *instancev1.ReleaseSlotsRequest) (*instancev1.ReleaseSlotsResponse, error) {
	if err := w.call(); err != nil {
		return nil, err
	}
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

// call counts a call and returns its error.
func (w *Writer) call() (err error) {
	w.mu.Lock()
	w.calls++
	number := w.calls
	if len(w.errs) > 0 {
		err, w.errs = w.errs[0], w.errs[1:]
	}
	w.mu.Unlock()
	if w.OnCall != nil {
		w.OnCall(number)
	}
	return err
}
