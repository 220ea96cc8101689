package server

import (
	"errors"

	"google.golang.org/grpc/codes"

	"akri.sh/libs/rpc"
	"akri.sh/services/instance-writer/internal/reports"
	"akri.sh/services/instance-writer/internal/slots"
)

// Reasons of errors, in addition to those of package slots.
const (
	reasonInstanceNotFound = "InstanceNotFound"
	reasonClaimNotFound    = "ClaimNotFound"
	reasonInvalidRequest   = "InvalidRequest"
	reasonNotWritten       = "NotWritten"
	reasonNotRead          = "NotRead"
	reasonStopping         = "Stopping"
	reasonConnectionLost   = "ConnectionLost"
	// reasonNotEnoughMemory is also that of package auth.
	reasonNotEnoughMemory = "NotEnoughMemory"
)

// results are the label values of the reservations metric.
var results = []string{"ok", reasonInstanceNotFound, reasonInvalidRequest, reasonNotWritten,
	string(slots.OutOfRange), string(slots.Malformed), string(slots.Held)}

// Errors after which a client opens its stream again over a new connection, which may reach another
// replica: those with UNAVAILABLE or RESOURCE_EXHAUSTED (see rpc.NewError).
var (
	errStopping       = rpc.NewError(codes.Unavailable, reasonStopping, "stopping")
	errConnectionLost = rpc.NewError(codes.Unavailable, reasonConnectionLost, "connection of this replica to the API server is lost")
)

var (
	errInstanceNotFound = errors.New("no such Instance")
	errClaimNotFound    = errors.New("no such ResourceClaim")
	errNotRead          = errors.New("reading failed")
)

// invalidRequestError is the error of a request that can never succeed.
type invalidRequestError string

// Error implements error.
func (e invalidRequestError) Error() string { return string(e) }

// reasonOf returns the reason of an error, or "ok" for nil.
func reasonOf(err error) string {
	var refusal *slots.Refusal
	var invalid invalidRequestError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &refusal):
		return string(refusal.Reason)
	case errors.As(err, &invalid):
		return reasonInvalidRequest
	case errors.Is(err, errInstanceNotFound):
		return reasonInstanceNotFound
	case errors.Is(err, errClaimNotFound):
		return reasonClaimNotFound
	case errors.Is(err, errNotRead):
		return reasonNotRead
	default:
		return reasonNotWritten
	}
}

func codeOf(reason string) codes.Code {
	switch reason {
	case reasonInvalidRequest:
		return codes.InvalidArgument
	case reasonInstanceNotFound, reasonClaimNotFound:
		return codes.NotFound
	case reasonNotWritten, reasonNotRead:
		return codes.Unavailable
	case string(slots.OutOfRange):
		return codes.OutOfRange
	default:
		return codes.FailedPrecondition
	}
}

// endStatus converts the cause of the end of a stream of reports.
func endStatus(cause error) error {
	if !errors.Is(cause, reports.ErrHeaviest) {
		return cause
	}
	return rpc.NewError(codes.ResourceExhausted, reasonNotEnoughMemory, cause.Error())
}

// toStatus converts an error to a gRPC status with a reason.
func toStatus(err error) error {
	reason := reasonOf(err)
	if refusal := (*slots.Refusal)(nil); errors.As(err, &refusal) {
		return rpc.NewError(codeOf(reason), reason, err.Error(), "slot", refusal.Slot)
	}
	return rpc.NewError(codeOf(reason), reason, err.Error())
}
