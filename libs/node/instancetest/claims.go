package instancetest

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// PutClaim creates or replaces a ResourceClaim that is allocated to the devices.
func (w *Writer) PutClaim(namespace, name, uid string, devices ...*instancev1.AllocatedDevice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims[namespace+"/"+name] = allocatedClaim{uid, devices}
}

// FailNextReads makes the next reads of ResourceClaims fail.
func (w *Writer) FailNextReads(errs ...error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readErrs = errs
}

// Reads returns the number of reads of ResourceClaims.
func (w *Writer) Reads() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

type allocatedClaim struct {
	uid     string
	devices []*instancev1.AllocatedDevice
}

// GetResourceClaim implements the API of instance-writer.
func (w *Writer) GetResourceClaim(
	_ context.Context, request *instancev1.GetResourceClaimRequest,
) (*instancev1.GetResourceClaimResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if len(w.readErrs) > 0 {
		err := w.readErrs[0]
		w.readErrs = w.readErrs[1:]
		return nil, err
	}

	if request.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "the name is malformed")
	}
	claim := w.claims[request.GetNamespace()+"/"+request.GetName()]
	unknown := claim.uid != request.GetUid() || len(claim.devices) == 0
	for _, device := range claim.devices {
		_, name := akriv0.InstanceOfDevice(device.GetPool(), device.GetDevice())
		unknown = unknown || w.instances[name] == nil
	}
	if unknown {
		return nil, status.Errorf(codes.NotFound, "no such ResourceClaim: %q", request.GetName())
	}
	return &instancev1.GetResourceClaimResponse{Devices: claim.devices}, nil
}

// GetResourceClaim implements instancev1.InstanceServiceClient.
func (c client) GetResourceClaim(
	ctx context.Context, request *instancev1.GetResourceClaimRequest, _ ...grpc.CallOption,
) (*instancev1.GetResourceClaimResponse, error) {
	return c.writer.GetResourceClaim(ctx, request)
}
