// Package claims prepares ResourceClaims on a node: it reserves a slot of each device and writes
// what containers get. deviceUsage in the Instances is the record of slots, as for device plugins:
// a container gets a device only after its slot was reserved.
package claims

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/node"
	"akri.sh/libs/node/slots"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/dra-kubelet-plugin/internal/cdi"
	"akri.sh/services/dra-kubelet-plugin/internal/metadata"
)

const (
	callTimeout = 2 * time.Second
	// retryInterval is the time between two attempts if the state of the node does not change.
	retryInterval = 500 * time.Millisecond
	// readTimeout bounds a request for a claim, which instance-writer reads from the API server.
	readTimeout = 5 * time.Second
	// unknownInterval is the time between two requests for a claim that instance-writer does not
	// return, if the state of the node does not change.
	unknownInterval = 5 * time.Second
	// maxReads is the number of requests for claims in progress: instance-writer limits the calls
	// of a node.
	maxReads = 4
)

// Files keep the claims that are prepared.
type Files interface {
	Write(claim cdi.Claim) error
	Remove(uid string) error
	// Slots returns the slots of all claims by uid. With an error it returns those that it can
	// read.
	Slots() (map[string][]node.SlotClaim, error)
	// Read returns the slots of a claim and whether it has a file.
	Read(uid string) (slots []node.SlotClaim, exists bool, err error)
}

// Options of a Manager.
type Options struct {
	Client  instancev1.InstanceServiceClient
	Store   *node.Store
	Files   Files
	Log     *zap.Logger
	Metrics Metrics
}

// Metrics counts what the Manager does in the background.
type Metrics interface {
	SetPrepared(claims int)
	// Released counts slots that were released because no prepared claim used them.
	Released(slots int)
	// Lost counts the slots of prepared claims that were recorded as free, and were reserved again
	// or taken by another holder before that.
	Lost(takenBack, taken int)
}

// Manager prepares and unprepares claims, one operation at a time.
type Manager struct {
	Options

	// operation has weight 1. Unlike a mutex, it can be acquired with a context. It guards the
	// fields below.
	operation *semaphore.Weighted
	// prepared has the slots of the claims with a file, or nil if the file cannot be read. A claim
	// is added before its slots are reserved. While another instance of the service replaces this
	// one, both write files: load reads that of a claim again.
	prepared map[string][]node.SlotClaim
	// taken are the lost slots that are logged already.
	taken map[node.SlotClaim]bool

	// reads limits the requests for claims.
	reads      *semaphore.Weighted
	unprepared unprepared
	// unreleased is set when a release has failed.
	unreleased broadcast.Signal
}

// New returns a Manager with the claims that are in the files. A file that cannot be read is
// logged: its claim counts as prepared, and its slots are those that the Instances record.
func New(options Options) (*Manager, error) {
	m := &Manager{
		Options: options, operation: semaphore.NewWeighted(1), reads: semaphore.NewWeighted(maxReads),
		taken: map[node.SlotClaim]bool{}, unprepared: unprepared{at: map[string]time.Time{}}, unreleased: broadcast.NewSignal(),
	}
	var err error
	if m.prepared, err = options.Files.Slots(); m.prepared == nil {
		return nil, err
	}
	if err != nil {
		options.Log.Warn("reading the file of a prepared claim failed", zap.Error(err))
	}
	options.Metrics.SetPrepared(len(m.prepared))
	return m, nil
}

// AnyPrepared reports whether a claim is prepared on this node.
func (m *Manager) AnyPrepared(ctx context.Context) bool {
	if err := m.operation.Acquire(ctx, 1); err != nil {
		return false
	}
	defer m.operation.Release(1)
	return len(m.prepared) > 0
}

// Prepare reserves the slots of the claim and writes what its containers get. It is idempotent. It
// waits for a device that this node does not see yet, for a slot to become free, and for
// instance-writer, until ctx ends or the claim is unprepared. The error is a gRPC status with a
// message for users, that of the last attempt that ctx did not interrupt.
func (m *Manager) Prepare(ctx context.Context, claim *drav1.Claim) ([]*drav1.Device, error) {
	m.unprepared.remove(claim.GetUid())
	var allocation *instancev1.GetResourceClaimResponse
	var cause error
	for {
		_, changed := m.Store.Get()
		var devices []*drav1.Device
		var err error
		wait := retryInterval
		if allocation == nil {
			allocation, err = m.read(ctx, claim)
			if status.Code(err) == codes.NotFound {
				wait = unknownInterval
			}
		}
		if err == nil {
			devices, err = m.attempt(ctx, claim, allocation)
		}
		if m.unprepared.has(claim.GetUid()) {
			return nil, errUnprepared
		}
		if err == nil || status.Code(err) == codes.InvalidArgument {
			return devices, err
		}
		if cause == nil {
			m.Log.Info("a claim waits to be prepared", zap.String("claim", claim.GetNamespace()+"/"+claim.GetName()), zap.Error(err))
		}
		if cause == nil || ctx.Err() == nil {
			cause = err
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(wait):
		}
		if ctx.Err() != nil {
			return nil, cause
		}
	}
}

// read returns what is allocated to the claim. instance-writer returns an error while an Instance
// does not list this node.
func (m *Manager) read(ctx context.Context, claim *drav1.Claim) (*instancev1.GetResourceClaimResponse, error) {
	if err := m.reads.Acquire(ctx, 1); err != nil {
		return nil, status.Error(codes.Unavailable, "other claims are being read")
	}
	defer m.reads.Release(1)
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	snapshot, _ := m.Store.Get()
	response, err := m.Client.GetResourceClaim(ctx, &instancev1.GetResourceClaimRequest{
		Node: snapshot.Node, Namespace: claim.GetNamespace(), Name: claim.GetName(), Uid: claim.GetUid(),
	})
	if status.Code(err) == codes.DeadlineExceeded {
		return nil, status.Error(codes.Unavailable, "instance-writer did not return the ResourceClaim")
	}
	return response, err
}

func (m *Manager) attempt(ctx context.Context, claim *drav1.Claim, allocation *instancev1.GetResourceClaimResponse) ([]*drav1.Device, error) {
	if err := m.operation.Acquire(ctx, 1); err != nil {
		return nil, status.Error(codes.Unavailable, "another claim is being prepared")
	}
	defer m.operation.Release(1)
	if m.unprepared.has(claim.GetUid()) {
		return nil, errUnprepared
	}
	snapshot, _ := m.Store.Get()
	devices, err := devicesOf(allocation.GetDevices(), snapshot)
	if err != nil {
		return nil, err
	}
	uid := claim.GetUid()
	previous, _ := m.load(uid)
	reserved, err := m.choose(uid, devices, previous, snapshot)
	if err != nil {
		return nil, err
	}
	files, err := metadata.Files(claim, allocation.GetPodClaimName(), described(devices))
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if err := m.write(cdi.Claim{UID: uid, Slots: reserved, Containers: containers(devices), Metadata: files}); err != nil {
		return nil, err
	}
	if err := m.reserve(ctx, reserved); err != nil {
		if slots.Refused(err) { // the next attempt chooses other slots
			if forgetErr := m.forget(uid); forgetErr != nil {
				return nil, forgetErr
			}
		}
		return nil, err
	}
	return prepared(uid, devices), nil
}

// write records the claim and its slots. The file exists before the slots are reserved, so that
// they are released even if this process ends before it gets the response.
func (m *Manager) write(claim cdi.Claim) error {
	if err := m.Files.Write(claim); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	m.prepared[claim.UID] = claim.Slots
	m.Metrics.SetPrepared(len(m.prepared))
	return nil
}

// load returns the slots of a claim and whether it is prepared, as its file states.
func (m *Manager) load(uid string) (slots []node.SlotClaim, exists bool) {
	slots, exists, err := m.Files.Read(uid)
	if err != nil {
		m.Log.Warn("reading the file of a prepared claim failed", zap.String("claim", uid), zap.Error(err))
	}
	if exists {
		m.prepared[uid] = slots
	} else {
		delete(m.prepared, uid)
	}
	m.Metrics.SetPrepared(len(m.prepared))
	return slots, exists
}

func (m *Manager) forget(uid string) error {
	if err := m.Files.Remove(uid); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	delete(m.prepared, uid)
	m.Metrics.SetPrepared(len(m.prepared))
	return nil
}

// prepared returns the devices of the claim for the kubelet, which gives a container the CDI
// devices of all devices of its requests. The first device of a request has that of all its
// devices.
func prepared(uid string, devices []allocated) []*drav1.Device {
	named := map[string]bool{}
	result := make([]*drav1.Device, 0, len(devices))
	for _, device := range devices {
		request := device.request()
		prepared := &drav1.Device{
			RequestNames: []string{request}, PoolName: device.GetPool(),
			DeviceName: device.GetDevice(), ShareId: device.ShareId,
		}
		if !named[request] {
			prepared.CdiDeviceIds = []string{cdi.DeviceID(uid, request)}
			named[request] = true
		}
		result = append(result, prepared)
	}
	return result
}

// Unprepare removes the file of the claim and releases its slots, and ends preparations of the
// claim that are in progress. A release that fails is repeated in the background, so that a Pod can
// end without instance-writer.
func (m *Manager) Unprepare(ctx context.Context, uid string) error {
	if err := m.operation.Acquire(ctx, 1); err != nil {
		return status.Error(codes.Unavailable, "another claim is being prepared")
	}
	defer m.operation.Release(1)
	m.unprepared.add(uid)
	snapshot, _ := m.Store.Get()
	held, _ := m.load(uid)
	for _, claim := range snapshot.ClaimSlots() {
		if claim.ClaimUID == uid && !slices.Contains(held, claim) {
			held = append(held, claim)
		}
	}
	if err := m.forget(uid); err != nil {
		return err
	}
	if err := m.release(ctx, held); err != nil {
		m.Log.Warn("releasing the slots of a claim failed, retrying", zap.String("claim", uid), zap.Error(err))
		m.unreleased.Notify()
	}
	return nil
}

func (m *Manager) reserve(ctx context.Context, claims []node.SlotClaim) error {
	if len(claims) == 0 {
		return nil // admin access
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := m.Store.Reserve(ctx, m.Client, claims)
	if status.Code(err) == codes.DeadlineExceeded {
		return status.Error(codes.Unavailable, "instance-writer did not confirm the reservation")
	}
	return err
}

func (m *Manager) release(ctx context.Context, claims []node.SlotClaim) error {
	if len(claims) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.Store.Release(ctx, m.Client, claims)
}
