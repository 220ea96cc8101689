package server

import (
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/services/instance-writer/internal/slots"
)

// Reasons of errors, in addition to those of package slots.
const (
	reasonInstanceNotFound = "InstanceNotFound"
	reasonInvalidRequest   = "InvalidRequest"
	reasonNotWritten       = "NotWritten"
)

// results are the label values of the reservations metric.
var results = []string{"ok", reasonInstanceNotFound, reasonInvalidRequest, reasonNotWritten,
	string(slots.OutOfRange), string(slots.Malformed), string(slots.Held)}

// Errors that make a client reopen its stream on another replica.
var (
	errStopping       = status.Error(codes.Unavailable, "stopping")
	errConnectionLost = status.Error(codes.Unavailable, "connection of this replica to the API server is lost")
)

var errInstanceNotFound = errors.New("no such Instance")

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
	default:
		return reasonNotWritten
	}
}

func codeOf(reason string) codes.Code {
	switch reason {
	case reasonInvalidRequest:
		return codes.InvalidArgument
	case reasonInstanceNotFound:
		return codes.NotFound
	case reasonNotWritten:
		return codes.Unavailable
	case string(slots.OutOfRange):
		return codes.OutOfRange
	default:
		return codes.FailedPrecondition
	}
}

// toStatus converts an error to a gRPC status with ErrorInfo details.
func toStatus(err error) error {
	reason := reasonOf(err)
	info := &errdetails.ErrorInfo{Reason: reason, Domain: akriv0.Group}
	if refusal := (*slots.Refusal)(nil); errors.As(err, &refusal) {
		info.Metadata = map[string]string{"slot": refusal.Slot}
	}
	plain := status.New(codeOf(reason), err.Error())
	detailed, detailsErr := plain.WithDetails(info)
	if detailsErr != nil {
		return plain.Err()
	}
	return detailed.Err()
}
