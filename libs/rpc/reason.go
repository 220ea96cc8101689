package rpc

import (
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// domain is that of the reasons of Akri's services.
const domain = "akri.sh"

// NewError returns a gRPC status with a reason for programs. metadata are keys and their values, in
// turn. Replicas connects to another replica after such an error with the code UNAVAILABLE or
// RESOURCE_EXHAUSTED.
func NewError(code codes.Code, reason, message string, metadata ...string) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: domain, Metadata: map[string]string{}}
	for pair := range slices.Chunk(metadata, 2) {
		info.Metadata[pair[0]] = pair[1]
	}

	plain := status.New(code, message)
	detailed, err := plain.WithDetails(info)
	if err != nil {
		return plain.Err()
	}
	return detailed.Err()
}

// refused reports whether a replica refused or ended a call because of its own state. Only servers
// send details: connections that fail are replaced by gRPC.
func refused(err error) bool {
	result := status.Convert(err)
	return (result.Code() == codes.ResourceExhausted || result.Code() == codes.Unavailable) &&
		slices.ContainsFunc(result.Details(), func(detail any) bool { _, ok := detail.(*errdetails.ErrorInfo); return ok })
}
